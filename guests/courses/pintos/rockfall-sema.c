/* Two threads of the main thread's priority wait for a semaphore that it raises twice: each of them must pass, and once. */

#include "tests/threads/tests.h"
#include "tests/threads/rockfall.h"
#include "threads/synch.h"
#include "threads/thread.h"

static struct semaphore raised, done;

static void
waiter (void *aux UNUSED)
{
  sema_down (&raised);
  sema_up (&done);
}

void
test_rockfall_sema (void)
{
  int i;

  sema_init (&raised, 0);
  sema_init (&done, 0);
  for (i = 0; i < 2; i++)
    thread_create ("waiter", PRI_DEFAULT, waiter, NULL);
  for (i = 0; i < 2; i++)
    sema_up (&raised);
  for (i = 0; i < 2; i++)
    sema_down (&done);
  if (raised.value != 0)
    fail ("the semaphore was raised twice and lowered twice, and is %u", raised.value);
}
