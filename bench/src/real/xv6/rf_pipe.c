// A child writes into a pipe and closes it; the parent reads to the end.
#include "types.h"
#include "user.h"

int
main(void)
{
  int ends[2], child, got, total = 0;
  char buffer[8];

  if(pipe(ends) < 0)
    printf(1, "FAIL pipe\n");
  child = fork();
  if(child == 0){
    close(ends[0]);
    if(write(ends[1], "abc", 3) != 3)
      printf(1, "FAIL write\n");
    close(ends[1]);
    exit();
  }
  close(ends[1]);
  while((got = read(ends[0], buffer, sizeof(buffer))) > 0)
    total += got;
  if(total != 3)
    printf(1, "FAIL %d bytes\n", total);
  close(ends[0]);
  if(wait() != child)
    printf(1, "FAIL wait\n");
  exit();
}
