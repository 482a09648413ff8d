// Three processes write through one open file: all that they write is there in the end.
#include "types.h"
#include "stat.h"
#include "fcntl.h"
#include "user.h"

int
main(void)
{
  char buffer[8];
  int file, i;

  file = open("same", O_CREATE | O_RDWR);
  for(i = 0; i < 2; i++){
    if(fork() == 0){
      if(write(file, "c", 1) != 1)
        printf(1, "FAIL child write\n");
      exit();
    }
  }
  if(write(file, "p", 1) != 1)
    printf(1, "FAIL write\n");
  while(wait() >= 0)
    ;
  close(file);
  file = open("same", O_RDONLY);
  i = read(file, buffer, sizeof(buffer));
  if(i != 3)
    printf(1, "FAIL %d of 3 bytes\n", i);
  close(file);
  unlink("same");
  exit();
}
