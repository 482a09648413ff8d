/*
 * A kernel in one file, for what the larger one does not have: a scheduler that is a loop on a stack of its own and looks for
 * work with interrupts on, without halting and without a current thread; a lock that is held across the switch, taken by one
 * and released by the other; and a command line that lies in memory.
 *
 * It says of itself what it does by annotations; with ROCKFALL_OFF it says nothing, and tiny.toml describes it instead.
 * Its test: two workers each add to a sum as often as the command line says, and thread 1 waits for both.
 *
 * FAULT_TORN_SUM: the sum is read and written under the lock, but the lock is given back in between.
 * FAULT_EARLY_CHECK: whether the workers are done is asked before the lock is taken that makes the answer last.
 *
 * Other ways to be a kernel:
 * STRICT: the scheduler always takes the first thread of the table that can run.
 * CLOCK: workers wait for the clock first, in a loop. CLOCK_NEVER: in one that no time ends.
 * ENDLESS: workers count for ever, and wait for nobody.
 * NAP: thread 1 sleeps instead of waiting for the workers; how long, is long enough on any machine.
 * DOZE: the same, by yielding until the clock has come.
 * ALARM: workers sleep first, each until a time of its own, and panic if they do not wake in that order. Who sleeps is woken when
 * its time has come, not by each tick.
 * SPIN: the lock around the sum is waited for in a loop, with interrupts on.
 * LONG: workers have much to do first. LONG_ROUNDS: how often they go round for it.
 * WIPE: workers go over much memory first, page by page, with interrupts off.
 * BLOCKS: workers allocate a block from a heap that gets its pages from another one and keeps them.
 * RESULT: the end of the test tells whether the sum is right, instead of panicking. (Annotated.)
 * FLAG: the sum is protected by a flag that ticks respect instead of by the lock. (Annotated.) FLAG_UNHEEDED: they do not.
 * PAGES: workers allocate a page and free it. FAULT_OPEN_HEAP: no lock protects which pages are taken.
 * FORK: a thread is made in one place, filled in, and let run in another; whoever waits for it learns from its state that it has
 * ended. FAULT_LATE_GIFT: it is let run before it is filled in.
 * URGENT: the scheduler takes turns among the most urgent threads that can run. The words of the command line are scripts of
 * threads: how urgent each is, then what it does, a letter for each act (see act()).
 */
#ifdef DOZE
#define NAP
#endif

#include "../../annotations/rockfall.h"

typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;

#ifdef URGENT
enum { THREADS = 5 };
#else
enum { THREADS = 3 };
#endif
enum { STACK_WORDS = 1024, WORKERS = 2, TIMER_VECTOR = 0x20, FLAG_INTERRUPTS = 0x200 };
/* Named by the description, so each must be there to be entered. */
#define HOOKED __attribute__((noinline))
enum state { UNUSED, RUNNABLE, RUNNING, SLEEPING, EMBRYO, ZOMBIE };

struct thread {
    int id;
    enum state state;
    const void *waits_for;
    void (*run)(void);
    uint32_t *stack_pointer;
    /* Lent ones included. */
    int urgency;
    const char *script;
    /* From whoever made it. */
    int gift;
    uint32_t stack[STACK_WORDS];
};

struct spin_lock {
    int held;
    /* Whether interrupts are to be turned on again. */
    int were_on;
};

struct mutex {
    int held;
    int owner;
};

struct thread threads[THREADS];
struct thread *current;
/* Protects the threads; held across a switch. */
struct spin_lock table;
static uint32_t *scheduler_stack_pointer;

volatile int ticks;
char command_line[64];
int command_line_words;
int rounds = 1;

__attribute__((unused)) static struct mutex sum_lock;
static volatile int undisturbed;
static volatile int sum;
static volatile int done;
#ifdef URGENT
/* Who made a note, in octal digits. */
volatile uint32_t trail;
static volatile int signals;
#endif

/* The machine. */

static void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void interrupts_off(void)
{
    __asm__ volatile("cli" : : : "memory");
}

static void interrupts_on(void)
{
    __asm__ volatile("sti" : : : "memory");
}

HOOKED void panic(const char *message)
{
    rockfall_panic(message);
    for (;;)
        __asm__ volatile("cli; hlt");
}

/* Locks. */

HOOKED void acquire(struct spin_lock *lock)
{
    uint32_t flags;
    __asm__ volatile("pushfl; popl %0" : "=r"(flags));
    interrupts_off();
    if (lock->held)
        panic("a spin lock is taken twice");
    lock->held = 1;
    lock->were_on = (flags & FLAG_INTERRUPTS) != 0;
}

HOOKED void release(struct spin_lock *lock)
{
    int were_on = lock->were_on;
    lock->held = 0;
    if (were_on)
        interrupts_on();
}

/* Saves the registers that a callee keeps, and goes on where `next` was saved. */
void swtch(uint32_t **save, uint32_t *next);
__asm__(".text\n"
        ".globl swtch\n"
        ".type swtch, @function\n"
        "swtch:\n"
        "  movl 4(%esp), %eax\n"
        "  movl 8(%esp), %edx\n"
        "  pushl %ebp\n"
        "  pushl %ebx\n"
        "  pushl %esi\n"
        "  pushl %edi\n"
        "  movl %esp, (%eax)\n"
        "  movl %edx, %esp\n"
        "  popl %edi\n"
        "  popl %esi\n"
        "  popl %ebx\n"
        "  popl %ebp\n"
        "  ret\n"
        ".size swtch, . - swtch\n");

/* Gives way to the scheduler, with the table locked. */
static void sched(void)
{
    int were_on = table.were_on;
    swtch(&current->stack_pointer, scheduler_stack_pointer);
    table.were_on = were_on;
}

HOOKED void yield(void)
{
    acquire(&table);
    current->state = RUNNABLE;
    sched();
    release(&table);
}

/* Waits to be woken, with the table locked. */
static void sleep_for(const void *reason)
{
    current->waits_for = reason;
    current->state = SLEEPING;
    rockfall_not_runnable(current->id);
    sched();
}

HOOKED void wake(const void *reason)
{
    for (int i = 0; i < THREADS; i++) {
        if (threads[i].state == SLEEPING && threads[i].waits_for == reason) {
            threads[i].state = RUNNABLE;
            rockfall_runnable(threads[i].id);
        }
    }
}

/* Gives way if somebody is more urgent. */
HOOKED void reconsider(void)
{
#ifdef URGENT
    acquire(&table);
    int stays = 1;
    for (int i = 0; i < THREADS; i++)
        stays &= threads[i].state != RUNNABLE || threads[i].urgency <= current->urgency;
    release(&table);
    if (!stays)
        yield();
#endif
}

/* Whoever holds a mutex is as urgent as those who wait for it. */
HOOKED void lend(int to)
{
    if (threads[to - 1].urgency < current->urgency)
        threads[to - 1].urgency = current->urgency;
}

HOOKED void give_back(void)
{
    if (current->script)
        current->urgency = current->script[0] - '0';
}

#ifdef SPIN
HOOKED void lock(struct mutex *mutex)
{
    int held = 1;
    while (held)
        __asm__ volatile("xchgl %0, %1" : "+r"(held), "+m"(mutex->held) : : "memory");
    /* Long enough to be asked whether it still waits. */
    for (volatile int i = 0; i < 5000; i++)
        ;
    mutex->owner = current->id;
}

HOOKED void unlock(struct mutex *mutex)
{
    __asm__ volatile("movl $0, %0" : "=m"(mutex->held) : : "memory");
}
#else
HOOKED void lock(struct mutex *mutex)
{
    rockfall_lock(mutex);
    acquire(&table);
    while (mutex->held) {
        rockfall_blocked(mutex, mutex->owner);
        lend(mutex->owner);
        sleep_for(mutex);
    }
    mutex->held = 1;
    mutex->owner = current->id;
    release(&table);
    rockfall_locked(mutex);
}

HOOKED void unlock(struct mutex *mutex)
{
    rockfall_unlock(mutex);
    acquire(&table);
    mutex->held = 0;
    wake(mutex);
    give_back();
    release(&table);
    reconsider();
    rockfall_unlocked(mutex);
}
#endif

/* Threads. */

HOOKED void thread_exit(void)
{
    acquire(&table);
    rockfall_exit();
    rockfall_not_runnable(current->id);
#ifdef FORK
    wake(current);
    current->state = ZOMBIE;
#else
    current->state = UNUSED;
#endif
    sched();
}

HOOKED void thread_begin(void)
{
    release(&table);
    interrupts_on();
    current->run();
    thread_exit();
}

HOOKED struct thread *thread_create(void (*run)(void))
{
    acquire(&table);
    struct thread *thread = 0;
    for (int i = 0; i < THREADS && !thread; i++) {
        if (threads[i].state == UNUSED) {
            thread = &threads[i];
            thread->id = i + 1;
        }
    }
    if (!thread)
        panic("too many threads");
    uint32_t *sp = thread->stack + STACK_WORDS;
    *--sp = 0;
    *--sp = (uint32_t)thread_begin;
    for (int i = 0; i < 4; i++)
        *--sp = 0;
    thread->stack_pointer = sp;
    thread->run = run;
#ifdef FORK
    thread->state = current ? EMBRYO : RUNNABLE;
#else
    thread->state = RUNNABLE;
#endif
    rockfall_create(thread->id);
    rockfall_runnable(thread->id);
    release(&table);
    return thread;
}

/* Whether the thread in slot `at` may be next. */
static int is_chosen(int at)
{
    int chosen = threads[at].state == RUNNABLE;
#ifdef URGENT
    for (int i = 0; i < THREADS; i++)
        chosen &= threads[i].state != RUNNABLE || threads[i].urgency <= threads[at].urgency;
#endif
    return chosen;
}

HOOKED void scheduler(void)
{
    for (;;) {
        interrupts_on();
        acquire(&table);
        for (int i = 0; i < THREADS; i++) {
            if (!is_chosen(i))
                continue;
            current = &threads[i];
            current->state = RUNNING;
            rockfall_switch(current->id);
            swtch(&scheduler_stack_pointer, current->stack_pointer);
            current = 0;
            rockfall_idle();
#ifdef STRICT
            i = -1;
#endif
        }
        release(&table);
    }
}

/* The clock. */

HOOKED void tick(void)
{
    outb(0x20, 0x20);
    acquire(&table);
    ticks++;
#ifdef ALARM
    for (int i = 0; i < THREADS; i++)
        if (threads[i].gift == ticks)
            wake(&threads[i]);
#else
    wake((const void *)&ticks);
#endif
    release(&table);
#ifndef FLAG_UNHEEDED
    if (undisturbed)
        return;
#endif
    if (current)
        yield();
}

/* Ticks take the processor away, or do not. */
HOOKED void disturb(int allowed)
{
    undisturbed = !allowed;
#ifndef FLAG_UNHEEDED
    rockfall_preemption(allowed);
#endif
}

/* As kernels do where a counter does not fit into a word. */
HOOKED int now(void)
{
    interrupts_off();
    int now = ticks;
    interrupts_on();
    return now;
}

HOOKED void nap(int length)
{
#ifdef DOZE
    for (int end = now() + length; now() < end;)
        yield();
#elif defined(ALARM)
    acquire(&table);
    current->gift = ticks + length;
    sleep_for(current);
    release(&table);
#else
    acquire(&table);
    for (int end = ticks + length; ticks < end;)
        sleep_for((const void *)&ticks);
    release(&table);
#endif
}

void tick_entry(void);
__asm__(".text\n"
        ".type tick_entry, @function\n"
        "tick_entry:\n"
        "  pushal\n"
        "  cld\n"
        "  call tick\n"
        "  popal\n"
        "  iret\n"
        ".size tick_entry, . - tick_entry\n");

struct __attribute__((packed)) table_register {
    uint16_t limit;
    uint32_t base;
};

static void machine_init(void)
{
    static uint32_t segments[] = {0, 0, 0x0000ffff, 0x00cf9a00, 0x0000ffff, 0x00cf9200};
    static uint32_t gates[2 * (TIMER_VECTOR + 1)];
    struct table_register gdt = {sizeof segments - 1, (uint32_t)segments};
    struct table_register idt = {sizeof gates - 1, (uint32_t)gates};
    uint32_t entry = (uint32_t)tick_entry;
    gates[2 * TIMER_VECTOR] = 0x00080000 | (entry & 0xffff);
    gates[2 * TIMER_VECTOR + 1] = (entry & 0xffff0000) | 0x8e00;
    __asm__ volatile("lgdt %0\n"
                     "ljmp $0x08, $1f\n"
                     "1: movl $0x10, %%eax\n"
                     "movl %%eax, %%ds\n"
                     "movl %%eax, %%es\n"
                     "movl %%eax, %%ss\n"
                     "lidt %1"
                     :
                     : "m"(gdt), "m"(idt)
                     : "eax", "memory");
    /* Interrupts 0x20 and up; the timer's alone. */
    outb(0x20, 0x11), outb(0x21, TIMER_VECTOR), outb(0x21, 4), outb(0x21, 1), outb(0x21, 0xfe);
    outb(0xa0, 0x11), outb(0xa1, TIMER_VECTOR + 8), outb(0xa1, 2), outb(0xa1, 1), outb(0xa1, 0xff);
    outb(0x43, 0x36), outb(0x40, 0x9c), outb(0x40, 0x2e);
}

/* Two heaps, of which one lives on the other. */

enum { PAGE = 4096 };
static char pages[2 * WORKERS][PAGE];

#ifdef PAGES
__attribute__((unused)) static struct spin_lock pages_lock;
static volatile char taken[2 * WORKERS];

HOOKED void *page_alloc(int size)
{
    int at = 0;
#ifndef FAULT_OPEN_HEAP
    acquire(&pages_lock);
#endif
    while (taken[at])
        at++;
    taken[at] = 1;
#ifndef FAULT_OPEN_HEAP
    release(&pages_lock);
#endif
    return pages[at] + 0 * size;
}

HOOKED void page_free(void *page)
{
    taken[((char *)page - pages[0]) / PAGE] = 0;
}
#else
static int pages_used;

HOOKED void *page_alloc(int size)
{
    return pages[pages_used++] + 0 * size;
}

HOOKED void page_free(void *page)
{
    pages_used -= page != 0;
}
#endif

/* A block after the word that would say which are free. */
HOOKED void *block_alloc(int size)
{
    return size < PAGE ? (char *)page_alloc(PAGE) + 64 : 0;
}

HOOKED void block_free(void *block)
{
    if (!block)
        page_free(block);
}

/* The test. */

void work(void)
{
#ifdef ALARM
    static volatile int woken;
    /* The time is asked for here and once more in nap(). */
    nap(40 + current->id - now());
    if (woken++ != current->id - 2)
        panic("woken out of order");
#endif
#ifdef CLOCK
    for (int start = now(); now() - start < 3;)
        ;
#endif
#ifdef CLOCK_NEVER
    for (int start = now(); now() - start >= 0;)
        ;
#endif
#ifdef ENDLESS
    for (volatile unsigned long long i = 0;; i++)
        ;
#endif
#ifdef LONG
#ifndef LONG_ROUNDS
#define LONG_ROUNDS 20000000
#endif
    for (volatile int i = 0; i < LONG_ROUNDS; i++)
        ;
#endif
#ifdef WIPE
    interrupts_off();
    for (volatile char *page = (volatile char *)0x800000; page < (volatile char *)0x1000000; page += 4096) {
        *page = 1;
        for (volatile int i = 0; i < 6000; i++)
            ;
    }
    interrupts_on();
#endif
#ifdef BLOCKS
    block_free(block_alloc(32));
#endif
#ifdef PAGES
    void *page = page_alloc(PAGE);
#endif
#if defined FLAG || defined FLAG_UNHEEDED
    for (int i = 0; i < rounds; i++) {
        disturb(0);
        int seen = sum;
        rockfall_point();
        sum = seen + 1;
        disturb(1);
    }
#else
    for (int i = 0; i < rounds; i++) {
        lock(&sum_lock);
        int seen = sum;
#ifdef FAULT_TORN_SUM
        unlock(&sum_lock);
        lock(&sum_lock);
#endif
        sum = seen + 1;
        unlock(&sum_lock);
    }
#endif
#ifdef PAGES
    page_free(page);
#endif
    acquire(&table);
    done++;
    wake((const void *)&done);
    release(&table);
}

__attribute__((unused)) static void wait_for_workers(int workers)
{
#ifdef FAULT_EARLY_CHECK
    while (done < workers) {
        rockfall_point();
        acquire(&table);
        sleep_for((const void *)&done);
        release(&table);
    }
#else
    acquire(&table);
    while (done < workers)
        sleep_for((const void *)&done);
    release(&table);
#endif
}

#ifdef URGENT
HOOKED void note(void)
{
    trail = trail * 8 + current->id;
}

HOOKED void act(char what)
{
    switch (what) {
    case 'n':
        note();
        break;
    case 'l':
        lock(&sum_lock);
        break;
    case 'u':
        unlock(&sum_lock);
        break;
    case 'v': /* signals */
        acquire(&table);
        signals++;
        wake((const void *)&signals);
        release(&table);
        reconsider();
        break;
    case 'p': /* waits for a signal */
        acquire(&table);
        while (!signals)
            sleep_for((const void *)&signals);
        signals--;
        release(&table);
        break;
    case '0' ... '9': /* is less or more urgent from now on */
        current->urgency = what - '0';
        reconsider();
        break;
    }
}

void perform(void)
{
    for (const char *next = current->script + 1; *next; next++)
        act(*next);
    acquire(&table);
    done++;
    wake((const void *)&done);
    release(&table);
}

HOOKED void run_test(void)
{
    current->urgency = 10;
    const char *script = command_line;
    for (int i = 0; i < command_line_words; i++) {
        struct thread *thread = thread_create(perform);
        thread->script = script;
        thread->urgency = script[0] - '0';
        while (*script++)
            ;
    }
    wait_for_workers(command_line_words);
}
#elif defined(FORK)
static void spend(void)
{
    current->gift--;
}

static void let_run(struct thread *thread)
{
    acquire(&table);
    thread->state = RUNNABLE;
    release(&table);
}

HOOKED void run_test(void)
{
    struct thread *child = thread_create(spend);
#ifdef FAULT_LATE_GIFT
    let_run(child);
    child->gift = 1;
#else
    child->gift = 1;
    let_run(child);
#endif
    acquire(&table);
    while (child->state != ZOMBIE)
        sleep_for(child);
    release(&table);
    if (child->gift != 0)
        panic("the gift was not spent");
}
#else
HOOKED void run_test(void)
{
    rockfall_test_start();
    for (int i = 0; i < WORKERS; i++)
        thread_create(work);
#ifdef NAP
    nap(100);
#else
    wait_for_workers(WORKERS);
#endif
#ifdef RESULT
    rockfall_message("both are done");
    rockfall_result("sum", sum != WORKERS * rounds);
#else
    if (sum != WORKERS * rounds)
        panic("the sum is wrong");
#endif
    rockfall_test_end();
}
#endif

void test_thread(void)
{
    run_test();
}

HOOKED void kernel_main(void)
{
    machine_init();
    if (command_line_words > 0 && command_line[0] >= '1' && command_line[0] <= '9')
        rounds = command_line[0] - '0';
    rockfall_begin();
    thread_create(test_thread);
    scheduler();
}

__asm__(".section .multiboot, \"a\"\n"
        ".align 4\n"
        ".long 0x1badb002, 0, -0x1badb002\n"
        ".text\n"
        ".globl start\n"
        ".type start, @function\n"
        "start:\n"
        "  movl $boot_stack_top, %esp\n"
        "  xorl %ebp, %ebp\n"
        "  call kernel_main\n"
        ".size start, . - start\n"
        ".bss\n"
        ".align 16\n"
        ".skip 4096\n"
        "boot_stack_top:\n"
        ".previous\n");
