// A letter goes to the child and back through two pipes, both of which stay open.
#include "types.h"
#include "user.h"

int
main(void)
{
  int there[2], back[2], child;
  char letter = 'a';

  if(pipe(there) < 0 || pipe(back) < 0)
    printf(1, "FAIL pipe\n");
  child = fork();
  if(child == 0){
    if(read(there[0], &letter, 1) != 1)
      printf(1, "FAIL child read\n");
    letter++;
    if(write(back[1], &letter, 1) != 1)
      printf(1, "FAIL child write\n");
    exit();
  }
  if(write(there[1], &letter, 1) != 1 || read(back[0], &letter, 1) != 1 || letter != 'b')
    printf(1, "FAIL answer\n");
  if(wait() != child)
    printf(1, "FAIL wait\n");
  exit();
}
