// Two processes make, write, read and remove a file each.
#include "types.h"
#include "stat.h"
#include "fcntl.h"
#include "user.h"

static void
work(char *name, char letter)
{
  char got = 0;
  int file;

  file = open(name, O_CREATE | O_RDWR);
  if(file < 0 || write(file, &letter, 1) != 1)
    printf(1, "FAIL write\n");
  close(file);
  file = open(name, O_RDONLY);
  if(file < 0 || read(file, &got, 1) != 1 || got != letter)
    printf(1, "FAIL read\n");
  close(file);
  if(unlink(name) < 0)
    printf(1, "FAIL unlink\n");
}

int
main(void)
{
  int child;

  child = fork();
  work(child == 0 ? "one" : "two", child == 0 ? '1' : '2');
  if(child != 0 && wait() != child)
    printf(1, "FAIL wait\n");
  exit();
}
