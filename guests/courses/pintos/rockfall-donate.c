/* A thread gives back a lock just when a more urgent one asks for it. Whoever donated, the priority must be its own again as
   soon as the lock is released.

   The urgent thread waits for a semaphore, which is no donation, until a thread of the main thread's own priority raises it.
   So it can come at any moment of the release. */

#include "tests/threads/tests.h"
#include "tests/threads/rockfall.h"
#include "threads/synch.h"
#include "threads/thread.h"

static struct lock contended;
static struct semaphore go, done;

static void
urgent (void *aux UNUSED)
{
  sema_down (&go);
  lock_acquire (&contended);
  lock_release (&contended);
  sema_up (&done);
}

static void
waker (void *aux UNUSED)
{
  sema_up (&go);
  sema_up (&done);
}

void
test_rockfall_donate (void)
{
  lock_init (&contended);
  sema_init (&go, 0);
  sema_init (&done, 0);
  thread_create ("urgent", PRI_DEFAULT + 1, urgent, NULL);
  lock_acquire (&contended);
  thread_create ("waker", PRI_DEFAULT, waker, NULL);
  lock_release (&contended);
  if (thread_get_priority () != PRI_DEFAULT)
    fail ("the lock is released, and the priority is still %d", thread_get_priority ());
  sema_down (&done);
  sema_down (&done);
}
