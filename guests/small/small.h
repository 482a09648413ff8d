/*
 * A small Unix: what makes other people's kernels hard to test. A shell reads a line from the keyboard, forks and executes a
 * program, which lies on a disk; the disk is asked for one sector at a time, whoever asked sleeps until its interrupt comes, and
 * sectors are kept in a few buffers, each with a lock for which one sleeps; the console scrolls; the heap has a lock of the old
 * kind, which turns interrupts off; and who sleeps for a time yields until the clock has come. The scheduler is a loop on a stack
 * of its own.
 *
 * A process has a page for its program and one for its stack, at USER and behind it. The first sector of the disk is a directory
 * of programs; the numbers that processes add to lie in the sectors from NUMBERS on.
 *
 * FAULT_ONE_LOOK: who was woken because a buffer's lock is free takes it without looking whether it still is.
 * FAULT_LATE_CLAIM: a buffer is chosen under the lock of the buffers, but claimed after that was given back.
 * FAULT_ONE_WAKEUP: the disk's interrupt starts the next request without waking who waited for this one.
 * FAULT_EARLY_CHILD: a forked process may run before it has its registers.
 * FAULT_OPEN_HEAP: no lock protects the list of free pages.
 */
#ifndef SMALL_H
#define SMALL_H

typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;

enum { PROCESSES = 6, BUFFERS = 4, PAGES = 48, PAGE = 4096, SECTOR = 512, NUMBERS = 64, NAME = 12, LINE = 32 };
enum { USER = 0x40000000, USER_PAGES = 2, PRESENT = 1, WRITABLE = 2, FOR_USERS = 4, LARGE = 0x80 };
enum { TIMER = 0x20, KEYBOARD = 0x21, DISK = 0x2e, SYSTEM_CALL = 0x40, VECTORS = 0x41 };
enum { KERNEL_CODE = 0x08, KERNEL_DATA = 0x10, USER_CODE = 0x1b, USER_DATA = 0x23, TASK = 0x28, FLAG_INTERRUPTS = 0x200 };
enum state { UNUSED, EMBRYO, RUNNABLE, RUNNING, SLEEPING, ZOMBIE };

/* What a trap pushes on the stack, the last word first. */
struct frame {
    uint32_t es, ds, edi, esi, ebp, ignored, ebx, edx, ecx, eax;
    uint32_t vector, error, eip, cs, eflags, esp, ss;
};

struct process {
    int id;
    enum state state;
    const void *waits_for;
    struct process *parent;
    char name[NAME];
    uint32_t *directory;
    uint32_t *table;
    char *stack;
    uint32_t *stack_pointer;
    struct frame *frame;
    int killed;
};

/* Held with interrupts off. */
struct spin_lock {
    int held;
};

/* Held for long: who waits for it sleeps. */
struct sleep_lock {
    struct spin_lock lock;
    int held;
    int owner;
};

struct buffer {
    int sector, users, valid, dirty;
    struct sleep_lock lock;
    struct buffer *next; /* whose turn it is after this one */
    char data[SECTOR];
};

/* machine.c */
extern volatile int ticks;
extern int interrupts_were_on; /* before the first who turned them off */
void interrupts_off(void);
void interrupts_back(void); /* once all who turned them off have said so */
void enter_process(struct process *process);
void trap_return(void);

/* sched.c */
extern struct process processes[PROCESSES];
extern struct process *current;
extern struct spin_lock table; /* protects the processes; held across a switch */
void acquire(struct spin_lock *lock);
void release(struct spin_lock *lock);
void acquire_sleep(struct sleep_lock *lock);
void release_sleep(struct sleep_lock *lock);
void sleep(const void *reason, struct spin_lock *lock); /* until woken; the lock is given back meanwhile */
void wake(const void *reason);
void wake_locked(const void *reason); /* with the table locked */
void sched(void);                     /* the same: gives way to the scheduler */
void yield(void);
void scheduler(void) __attribute__((noreturn));

/* heap.c */
void heap_init(void);
void *page_alloc(void);
void page_free(void *page);

/* console.c */
void print(const char *text);
void panic(const char *message) __attribute__((noreturn));
char read_key(void);
void keyboard_interrupt(void);

/* disk.c */
struct buffer *buffer_read(int sector); /* with its lock */
void buffer_write(struct buffer *buffer);
void buffer_release(struct buffer *buffer);
void disk_interrupt(void);

/* process.c */
void first_process(void);
int sys_fork(void);
int sys_exit(void);
int sys_wait(void);
int sys_exec(const char *name);

/* syscall.c */
int system_call(struct frame *frame);

/* Ports and memory. */

static inline void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline void fill(void *to, int value, int size)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(value) : "memory");
}

static inline void copy(void *to, const void *from, int size)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

#endif
