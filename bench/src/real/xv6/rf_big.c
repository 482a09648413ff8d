// A child writes more than a pipe holds.
#include "types.h"
#include "user.h"

enum { BYTES = 600 };
static char buffer[BYTES];

int
main(void)
{
  int ends[2], child, got, total = 0;

  if(pipe(ends) < 0)
    printf(1, "FAIL pipe\n");
  child = fork();
  if(child == 0){
    if(write(ends[1], buffer, BYTES) != BYTES)
      printf(1, "FAIL write\n");
    exit();
  }
  while(total < BYTES && (got = read(ends[0], buffer, BYTES - total)) > 0)
    total += got;
  if(total != BYTES)
    printf(1, "FAIL %d bytes\n", total);
  if(wait() != child)
    printf(1, "FAIL wait\n");
  exit();
}
