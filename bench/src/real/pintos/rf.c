/* Tests of the threads project in which threads of equal priority meet. */
#include <stdio.h>
#include "tests/threads/tests.h"
#include "threads/init.h"
#include "threads/synch.h"
#include "threads/thread.h"

static struct semaphore done;
static int inside, total;

/* Starts THREADS threads of equal priority and waits until each has said that it is done. */
static void
meet (thread_func *work, int threads)
{
  int i;

  inside = total = 0;
  sema_init (&done, 0);
  for (i = 0; i < threads; i++)
    thread_create ("rf", PRI_DEFAULT, work, NULL);
  for (i = 0; i < threads; i++)
    sema_down (&done);
}

/* Nobody else may be here. */
static void
critical (void)
{
  if (inside++ != 0)
    fail ("two threads are in one critical section");
  total++;
  if (--inside != 0)
    fail ("two threads were in one critical section");
}

static struct semaphore gate;

static void
through_gate (void *aux UNUSED)
{
  sema_down (&gate);
  critical ();
  sema_up (&gate);
  sema_up (&done);
}

void
test_rf_sema (void)
{
  sema_init (&gate, 1);
  meet (through_gate, 3);
  if (total != 3)
    fail ("%d of 3 came through", total);
}

static void
pass_gate (void *aux UNUSED)
{
  sema_down (&gate);
  sema_up (&done);
}

void
test_rf_post (void)
{
  int i;

  sema_init (&gate, 0);
  sema_init (&done, 0);
  for (i = 0; i < 2; i++)
    thread_create ("waits", PRI_DEFAULT, pass_gate, NULL);
  thread_yield ();
  for (i = 0; i < 2; i++)
    sema_up (&gate);
  for (i = 0; i < 2; i++)
    sema_down (&done);
}

static struct lock lock;

static void
under_lock (void *aux UNUSED)
{
  lock_acquire (&lock);
  critical ();
  lock_release (&lock);
  sema_up (&done);
}

void
test_rf_lock (void)
{
  lock_init (&lock);
  meet (under_lock, 3);
  if (total != 3)
    fail ("%d of 3 had the lock", total);
}

static void
try_lock (void *aux UNUSED)
{
  if (lock_try_acquire (&lock))
    {
      critical ();
      lock_release (&lock);
    }
  sema_up (&done);
}

void
test_rf_try (void)
{
  lock_init (&lock);
  meet (try_lock, 2);
}

static struct condition changed;
static int state;

static void
await_state (void *aux UNUSED)
{
  lock_acquire (&lock);
  while (state == 0)
    cond_wait (&changed, &lock);
  state--;
  lock_release (&lock);
  sema_up (&done);
}

static void
raise_state (void *aux UNUSED)
{
  lock_acquire (&lock);
  state++;
  cond_signal (&changed, &lock);
  lock_release (&lock);
  sema_up (&done);
}

void
test_rf_cond (void)
{
  int i;

  state = 0;
  lock_init (&lock);
  cond_init (&changed);
  sema_init (&done, 0);
  thread_create ("waits", PRI_DEFAULT, await_state, NULL);
  thread_create ("raises", PRI_DEFAULT, raise_state, NULL);
  for (i = 0; i < 2; i++)
    sema_down (&done);
}

static void
await_open (void *aux UNUSED)
{
  lock_acquire (&lock);
  while (state == 0)
    cond_wait (&changed, &lock);
  lock_release (&lock);
  sema_up (&done);
}

void
test_rf_broadcast (void)
{
  int i;

  state = 0;
  lock_init (&lock);
  cond_init (&changed);
  sema_init (&done, 0);
  for (i = 0; i < 2; i++)
    thread_create ("waits", PRI_DEFAULT, await_open, NULL);
  thread_yield ();
  lock_acquire (&lock);
  state = 1;
  cond_broadcast (&changed, &lock);
  lock_release (&lock);
  for (i = 0; i < 2; i++)
    sema_down (&done);
}

static tid_t tids[2];

static void
nothing (void *aux UNUSED)
{
}

static void
make_thread (void *slot)
{
  *(tid_t *) slot = thread_create ("made", PRI_DEFAULT, nothing, NULL);
  sema_up (&done);
}

void
test_rf_tids (void)
{
  int i;

  sema_init (&done, 0);
  for (i = 0; i < 2; i++)
    thread_create ("makes", PRI_DEFAULT, make_thread, &tids[i]);
  for (i = 0; i < 2; i++)
    sema_down (&done);
  if (tids[0] == tids[1])
    fail ("two threads have the number %d", tids[0]);
}
