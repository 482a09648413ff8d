// Parent and child fork at the same time.
#include "types.h"
#include "user.h"

int
main(void)
{
  int child, other;

  child = fork();
  other = fork();
  if(child < 0 || other < 0)
    printf(1, "FAIL fork\n");
  if(other == 0)
    exit();
  if(child == 0){
    if(wait() != other)
      printf(1, "FAIL the child's child\n");
    exit();
  }
  if(wait() < 0 || wait() < 0)
    printf(1, "FAIL wait\n");
  exit();
}
