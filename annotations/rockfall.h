/*
 * Annotations for Rockfall: an alternative to hooks in a kernel description.
 *
 * A kernel that calls these where the comments say needs, in its description, only `annotations = true` and what it wants
 * to add. Each call is one CPUID instruction with a leaf that no processor has: Rockfall's machine notices it, any other
 * machine answers with numbers that nobody looks at. It needs no library, works in kernel and user mode, changes no memory,
 * and with ROCKFALL_OFF defined vanishes altogether.
 *
 * Calls about the run queue or the running thread belong where the kernel protects those: with preemption disabled.
 * Thread numbers are the kernel's own; locks are named by their address. Required: rockfall_switch, rockfall_create,
 * rockfall_exit, rockfall_runnable and rockfall_not_runnable. The rest makes findings more precise.
 */
#ifndef ROCKFALL_H
#define ROCKFALL_H

#define ROCKFALL_LEAF 0x524f434b /* "ROCK" */

enum rockfall_code {
    ROCKFALL_BEGIN = 1,
    ROCKFALL_SWITCH = 2,
    ROCKFALL_CREATE = 3,
    ROCKFALL_EXIT = 4,
    ROCKFALL_SLEEP = 5,
    ROCKFALL_YIELD = 6,
    ROCKFALL_RUNNABLE = 7,
    ROCKFALL_NOT_RUNNABLE = 8,
    ROCKFALL_IDLE = 9,
    ROCKFALL_DEVICE = 10,
    ROCKFALL_PREEMPTION = 11,
    ROCKFALL_LOCK = 16,
    ROCKFALL_LOCKED = 17,
    ROCKFALL_BLOCKED = 18,
    ROCKFALL_TRYLOCK = 19,
    ROCKFALL_TRIED = 20,
    ROCKFALL_UNLOCK = 21,
    ROCKFALL_UNLOCKED = 22,
    ROCKFALL_DOWN = 23,
    ROCKFALL_UP = 24,
    ROCKFALL_ALLOC = 32,
    ROCKFALL_FREE = 33,
    ROCKFALL_PANIC = 34,
    ROCKFALL_FAULT = 35,
    ROCKFALL_READY = 48,
    ROCKFALL_TEST_START = 49,
    ROCKFALL_TEST_END = 50,
    ROCKFALL_POINT = 51,
    ROCKFALL_MESSAGE = 52,
    ROCKFALL_RESULT = 53,
    ROCKFALL_SYSTEM_CALL = 54,
    ROCKFALL_FAILED = 55,
    ROCKFALL_CHECKED = 56,
    ROCKFALL_INPUT = 57
};

static inline void rockfall_call(enum rockfall_code code, unsigned long a, unsigned long b)
{
#ifdef ROCKFALL_OFF
    (void)code, (void)a, (void)b;
#else
    unsigned long leaf = ROCKFALL_LEAF, which = code;
    __asm__ volatile("cpuid" : "+a"(leaf), "+b"(a), "+c"(which), "+d"(b) : : "memory");
#endif
}

/* The scheduler is set up; what was called before does not count. */
static inline void rockfall_begin(void) { rockfall_call(ROCKFALL_BEGIN, 0, 0); }

/* In the context switch: `tid` runs from here on. */
static inline void rockfall_switch(int tid) { rockfall_call(ROCKFALL_SWITCH, (unsigned long)tid, 0); }

/* Nobody runs from here on: the scheduler looks for somebody, on a stack of its own. */
static inline void rockfall_idle(void) { rockfall_call(ROCKFALL_IDLE, 0, 0); }

/* The running thread makes `child`, which is not runnable yet. */
static inline void rockfall_create(int child) { rockfall_call(ROCKFALL_CREATE, (unsigned long)child, 0); }

/* The running thread is about to switch away for the last time. */
static inline void rockfall_exit(void) { rockfall_call(ROCKFALL_EXIT, 0, 0); }

/* The running thread is about to wait for the clock, or to offer the processor to others. */
static inline void rockfall_sleep(void) { rockfall_call(ROCKFALL_SLEEP, 0, 0); }
static inline void rockfall_yield(void) { rockfall_call(ROCKFALL_YIELD, 0, 0); }

/* The running thread is about to wait for a device, which answers without anyone's help. */
static inline void rockfall_device(void) { rockfall_call(ROCKFALL_DEVICE, 0, 0); }

/* Whether the timer may take the processor away, for kernels that say so by a flag; interrupts that are off always count. */
static inline void rockfall_preemption(int allowed) { rockfall_call(ROCKFALL_PREEMPTION, (unsigned long)allowed, 0); }

/* `tid` can run from here on, or cannot. Whether the running thread is on a run queue does not matter: say what is true. */
static inline void rockfall_runnable(int tid) { rockfall_call(ROCKFALL_RUNNABLE, (unsigned long)tid, 0); }
static inline void rockfall_not_runnable(int tid) { rockfall_call(ROCKFALL_NOT_RUNNABLE, (unsigned long)tid, 0); }

/* First and last in the lock function; `blocked` where it finds the lock taken by `owner` and is about to wait. */
static inline void rockfall_lock(const void *lock) { rockfall_call(ROCKFALL_LOCK, (unsigned long)lock, 0); }
static inline void rockfall_locked(const void *lock) { rockfall_call(ROCKFALL_LOCKED, (unsigned long)lock, 0); }
static inline void rockfall_blocked(const void *lock, int owner)
{
    rockfall_call(ROCKFALL_BLOCKED, (unsigned long)lock, (unsigned long)owner);
}

/* First and last in the function that only tries. */
static inline void rockfall_trylock(const void *lock) { rockfall_call(ROCKFALL_TRYLOCK, (unsigned long)lock, 0); }
static inline void rockfall_tried(const void *lock, int succeeded)
{
    rockfall_call(ROCKFALL_TRIED, (unsigned long)lock, (unsigned long)succeeded);
}

/* First and last in the unlock function. */
static inline void rockfall_unlock(const void *lock) { rockfall_call(ROCKFALL_UNLOCK, (unsigned long)lock, 0); }
static inline void rockfall_unlocked(const void *lock) { rockfall_call(ROCKFALL_UNLOCKED, (unsigned long)lock, 0); }

/* Semaphores have no owner: last in the function that counts down, in place of `locked`; first in the one that counts up, in
 * place of `unlock`. */
static inline void rockfall_down(const void *semaphore) { rockfall_call(ROCKFALL_DOWN, (unsigned long)semaphore, 0); }
static inline void rockfall_up(const void *semaphore) { rockfall_call(ROCKFALL_UP, (unsigned long)semaphore, 0); }

/* Last in the allocator, first in its opposite. */
static inline void rockfall_alloc(const void *block, unsigned long size)
{
    rockfall_call(ROCKFALL_ALLOC, (unsigned long)block, size);
}
static inline void rockfall_free(const void *block) { rockfall_call(ROCKFALL_FREE, (unsigned long)block, 0); }

/* The kernel gives up; the message ends with a NUL. */
static inline void rockfall_panic(const char *message) { rockfall_call(ROCKFALL_PANIC, (unsigned long)message, 0); }

/* The kernel met an exception that it has no use for. */
static inline void rockfall_fault(int vector, const void *address)
{
    rockfall_call(ROCKFALL_FAULT, (unsigned long)vector, (unsigned long)address);
}

/* A program entered the kernel. */
static inline void rockfall_system_call(int number) { rockfall_call(ROCKFALL_SYSTEM_CALL, (unsigned long)number, 0); }

/* The kernel waits for input; the test begins; the test is over. */
static inline void rockfall_ready(void) { rockfall_call(ROCKFALL_READY, 0, 0); }
static inline void rockfall_test_start(void) { rockfall_call(ROCKFALL_TEST_START, 0, 0); }
static inline void rockfall_test_end(void) { rockfall_call(ROCKFALL_TEST_END, 0, 0); }

/* The same for a test of several threads that are pinned to processors, each saying it for itself: thread `index` of
 * `threads` (never 0) is in place and about to begin; has come to its end. */
static inline void rockfall_test_start_of(int index, int threads)
{
    rockfall_call(ROCKFALL_TEST_START, (unsigned long)index, (unsigned long)threads);
}
static inline void rockfall_test_end_of(int index, int threads)
{
    rockfall_call(ROCKFALL_TEST_END, (unsigned long)index, (unsigned long)threads);
}

/* Something to show to the user; the text ends with a NUL. */
static inline void rockfall_message(const char *text) { rockfall_call(ROCKFALL_MESSAGE, (unsigned long)text, 0); }

/* A test is over; status 0: passed. Another status is a finding. */
static inline void rockfall_result(const char *test, int status)
{
    rockfall_call(ROCKFALL_RESULT, (unsigned long)test, (unsigned long)status);
}

/* Something that the test expects does not hold, and on a second line what is the case; the text ends with a NUL. A
 * finding. */
static inline void rockfall_fails(const char *text) { rockfall_call(ROCKFALL_FAILED, (unsigned long)text, 0); }

/* All threads of the test have ended, and what they left has been looked at. */
static inline void rockfall_checked(void) { rockfall_call(ROCKFALL_CHECKED, 0, 0); }

/* Another thread may be let in here. */
static inline void rockfall_point(void) { rockfall_call(ROCKFALL_POINT, 0, 0); }

#endif
