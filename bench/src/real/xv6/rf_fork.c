// Two children end; the parent waits for both, and there is no third.
#include "types.h"
#include "user.h"

int
main(void)
{
  int a, b, first, second;

  a = fork();
  if(a == 0)
    exit();
  b = fork();
  if(b == 0)
    exit();
  first = wait();
  second = wait();
  if(!(first == a && second == b) && !(first == b && second == a))
    printf(1, "FAIL wait gave %d and %d\n", first, second);
  if(wait() != -1)
    printf(1, "FAIL a third child\n");
  exit();
}
