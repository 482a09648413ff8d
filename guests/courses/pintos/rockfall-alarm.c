/* Two threads sleep once, each for its own time, and neither may wake too early. */

#include "tests/threads/tests.h"
#include "tests/threads/rockfall.h"
#include "devices/timer.h"
#include "threads/synch.h"
#include "threads/thread.h"

static struct semaphore done;
static const int64_t durations[2] = {2, 3};

static void
sleeper (void *duration_)
{
  const int64_t *duration = duration_;
  int64_t start = timer_ticks ();

  timer_sleep (*duration);
  if (timer_elapsed (start) < *duration)
    fail ("woke %d ticks too early", (int) (*duration - timer_elapsed (start)));
  sema_up (&done);
}

void
test_rockfall_alarm (void)
{
  int i;

  sema_init (&done, 0);
  for (i = 0; i < 2; i++)
    thread_create ("sleeper", PRI_DEFAULT, sleeper, (void *) &durations[i]);
  for (i = 0; i < 2; i++)
    sema_down (&done);
}
