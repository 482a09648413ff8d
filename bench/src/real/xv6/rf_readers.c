// Two children read a letter each from a pipe that stays open until both have theirs.
#include "types.h"
#include "user.h"

int
main(void)
{
  int ends[2], i;
  char letter;

  if(pipe(ends) < 0)
    printf(1, "FAIL pipe\n");
  for(i = 0; i < 2; i++){
    if(fork() == 0){
      if(read(ends[0], &letter, 1) != 1)
        printf(1, "FAIL the pipe is open and has a letter for each\n");
      exit();
    }
  }
  for(i = 0; i < 2; i++)
    if(write(ends[1], "x", 1) != 1)
      printf(1, "FAIL write\n");
  for(i = 0; i < 2; i++)
    if(wait() < 0)
      printf(1, "FAIL wait\n");
  exit();
}
