/*
 * A kernel for several processors in one file: it starts them, lets each do its part of a test, and checks what is left when
 * the last one has come to its end. Interrupts are off, except where a test turns them on, so a processor that waits for a lock
 * waits for ever if nobody releases it.
 *
 * CPUS: how many processors there are; 2 unless that is said.
 * POWERS_OFF: whoever is done switches the machine off.
 * NEVER_RESTS: whoever is done looks for work for ever, under a lock.
 * TAKES_TURNS: two who are done give the word to each other for ever.
 *
 * The tests, each with a fault and, with MENDED, without it:
 * TEST_ABBA: two accounts, each with its lock; money goes both ways at once.
 * TEST_TWICE: whoever has a lock takes it again.
 * TEST_COUNT: each processor adds to a sum that no lock protects.
 * TEST_QUEUE: a slot is handed over by a flag, which is set before the slot is filled.
 * TEST_BLOCKS: a block is freed, outside of the lock, while another processor may still read it.
 * TEST_LATE: a block is read after whoever freed it has said so, two calls deep.
 * TEST_TAS: the same sum under a lock that is waited for without PAUSE. (Without a fault.)
 * TEST_RING: CPUS processors take two of CPUS locks each, in a ring.
 * TEST_TABLES: files are opened in two big tables, each with its lock, and blocks are allocated and freed for them; who has the
 *     one lock looks into the other table.
 * TEST_PETERSON: two processors exclude each other by plain loads and stores, without a fence. Right where stores are seen at once.
 * TEST_SLEEP: one says that it sleeps and looks for work, the other brings work and looks for a sleeper, without fences. The same.
 * TEST_TIMER: a lock that the handler of a timer takes too is held with interrupts on.
 * TEST_CALL: one interrupts the other to tell it of a new version, and announces that all know it without waiting for the handler.
 *
 * TEST_PROGRAM: each processor carries out the program that lies in `programs`, which whoever loads the kernel fills in.
 */
typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;

#ifndef CPUS
#define CPUS 2
#endif
enum { STACK_WORDS = 512, STACKS = 8 };
/* Named on the command line or in the description, so each must be there to be entered. */
#define HOOKED __attribute__((noinline, noclone, used))

struct spin_lock {
    volatile uint32_t held;
};

uint32_t stacks[STACKS][STACK_WORDS];
static volatile uint32_t started;
static volatile uint32_t ended;

static inline uint32_t exchange(volatile uint32_t *at, uint32_t value)
{
    __asm__ volatile("lock xchgl %0, %1" : "+r"(value), "+m"(*at)::"memory");
    return value;
}

static inline uint32_t fetch_add(volatile uint32_t *at, uint32_t value)
{
    __asm__ volatile("lock xaddl %0, %1" : "+r"(value), "+m"(*at)::"memory");
    return value;
}

static inline uint32_t compare_exchange(volatile uint32_t *at, uint32_t expected, uint32_t value)
{
    __asm__ volatile("lock cmpxchgl %2, %1" : "+a"(expected), "+m"(*at) : "r"(value) : "memory");
    return expected;
}

HOOKED void acquire(struct spin_lock *lock)
{
    while (exchange(&lock->held, 1))
        while (lock->held)
            __asm__ volatile("pause");
}

HOOKED void release(struct spin_lock *lock)
{
    __asm__ volatile("" ::: "memory");
    lock->held = 0;
}

HOOKED void halt(void)
{
    for (;;)
        __asm__ volatile("hlt");
}

HOOKED void panic(const char *message)
{
    (void)message;
    halt();
}

/* --- the heap --- */

struct block {
    struct block *next;
    uint32_t value;
};
static struct block blocks[4];
static struct block *unused;
static struct spin_lock heap_lock;

HOOKED struct block *block_alloc(void)
{
    acquire(&heap_lock);
    struct block *block = unused;
    unused = block->next;
    release(&heap_lock);
    return block;
}

HOOKED void block_free(struct block *block)
{
    acquire(&heap_lock);
    block->next = unused;
    unused = block;
    release(&heap_lock);
}

static void prepare_heap(void)
{
    for (int i = 0; i < 3; i++)
        blocks[i].next = &blocks[i + 1];
    unused = blocks;
}

/* --- interrupts --- */

#if defined(TEST_TIMER) || defined(TEST_CALL)
#define PREPARES
enum { LOCAL_APIC = 0xfee00000, END_OF_INTERRUPT = 0xb0, SPURIOUS_VECTOR = 0xf0, COMMAND_REGISTER = 0x300, TIMER = 0x320, COUNT = 0x380, DIVISION = 0x3e0 };
enum { VECTOR = 0x40, ONCE = 0, NEVER_BY_ITSELF = 0x40000000, TO_ALL_OTHERS = 0xc4000 };

struct gate {
    uint16_t low, selector, kind, high;
} __attribute__((packed));
static struct gate gates[STACKS][VECTOR + 1];
extern uint8_t interrupt_entry[];

static volatile uint32_t *apic(uint32_t at) { return (volatile uint32_t *)(LOCAL_APIC + at); }

/* Makes an interrupt lead to `handler`, which the test has. */
static void accept_interrupts(int cpu)
{
    struct {
        uint16_t bytes;
        struct gate *at;
    } __attribute__((packed)) table = {sizeof gates[cpu] - 1, gates[cpu]};
    uint32_t selector, entry = (uint32_t)interrupt_entry;
    __asm__ volatile("movl %%cs, %0" : "=r"(selector));
    gates[cpu][VECTOR] = (struct gate){entry & 0xffff, (uint16_t)selector, 0x8e00, entry >> 16};
    __asm__ volatile("lidt %0" ::"m"(table));
    *apic(SPURIOUS_VECTOR) = 0x1ff;
}

__asm__(".text\n"
        ".globl interrupt_entry\n"
        "interrupt_entry:\n"
        "    pushal\n"
        "    call handler\n"
        "    popal\n"
        "    iretl\n");
#endif

/* --- the tests --- */

#if defined(TEST_ABBA)
static struct spin_lock locks[2];
static volatile int accounts[2] = {100, 100};

static void transfer(int from, int to)
{
#ifdef MENDED
    int first = from < to ? from : to, second = from < to ? to : from;
#else
    int first = from, second = to;
#endif
    acquire(&locks[first]);
    acquire(&locks[second]);
    accounts[from] -= 10;
    accounts[to] += 10;
    release(&locks[second]);
    release(&locks[first]);
}

static void work(int cpu)
{
    if (cpu < 2)
        transfer(cpu, 1 - cpu);
}

static void check(void)
{
    if (accounts[0] != 100 || accounts[1] != 100)
        panic("money was made or lost");
}

#elif defined(TEST_TWICE)
static struct spin_lock lock;
static volatile int visitors;

static void work(int cpu __attribute__((unused)))
{
    acquire(&lock);
#ifndef MENDED
    acquire(&lock);
#endif
    visitors++;
    release(&lock);
}

static void check(void)
{
    if (visitors != CPUS)
        panic("somebody was not there");
}

#elif defined(TEST_COUNT)
static volatile uint32_t sum;

/* The addition is its very first instruction. */
static __attribute__((naked, noinline)) void work(int cpu __attribute__((unused)))
{
#ifdef MENDED
    __asm__ volatile("lock incl sum\n ret");
#else
    __asm__ volatile("incl sum\n ret");
#endif
}

static void check(void)
{
    if (sum != CPUS)
        panic("an addition was lost");
}

#elif defined(TEST_QUEUE)
static volatile uint32_t slot, full, taken;

static void work(int cpu)
{
    if (cpu == 0) {
#ifdef MENDED
        slot = 7;
        full = 1;
#else
        full = 1;
        slot = 7;
#endif
    } else if (cpu == 1) {
        while (!full)
            __asm__ volatile("pause");
        taken = slot;
    }
}

static void check(void)
{
    if (taken != 7)
        panic("the slot was taken before it was filled");
}

#elif defined(TEST_LATE)
static struct block *volatile kept;
static volatile uint32_t gone, seen;

HOOKED uint32_t look_inside(const struct block *block)
{
    return block->value;
}

/* The call is not the last thing that it does, so that it is on the stack meanwhile. */
HOOKED uint32_t visit(const struct block *block)
{
    return look_inside(block) + 1;
}

static void work(int cpu)
{
    if (cpu == 0) {
        struct block *block = block_alloc();
        block->value = 1;
#ifdef MENDED
        seen = visit(block);
#endif
        kept = block;
        while (!gone)
            __asm__ volatile("pause");
#ifndef MENDED
        seen = visit(block);
#endif
    } else if (cpu == 1) {
        while (!kept)
            __asm__ volatile("pause");
        block_free(kept);
        gone = 1;
    }
}

static void check(void) {}

#elif defined(TEST_BLOCKS)
static struct spin_lock table_lock;
static struct block *volatile table;

static void work(int cpu)
{
    if (cpu == 0) {
        struct block *block = block_alloc();
        block->value = 1;
        acquire(&table_lock);
        table = block;
        release(&table_lock);
        acquire(&table_lock);
        block = table;
        table = 0;
        release(&table_lock);
        block_free(block);
    } else if (cpu == 1) {
        acquire(&table_lock);
        struct block *block = table;
#ifdef MENDED
        if (block)
            block->value += 1;
        release(&table_lock);
#else
        release(&table_lock);
        if (block)
            block->value += 1;
#endif
    }
}

static void check(void) {}

#elif defined(TEST_TAS)
static volatile uint32_t held, sum;

static void work(int cpu)
{
    (void)cpu;
    while (exchange(&held, 1))
        ;
    sum++;
    held = 0;
}

static void check(void)
{
    if (sum != CPUS)
        panic("an addition was lost");
}

#elif defined(TEST_RING)
static struct spin_lock locks[CPUS];

static void work(int cpu)
{
    int left = cpu, right = (cpu + 1) % CPUS;
#ifdef MENDED
    if (left > right)
        left = right, right = cpu;
#endif
    acquire(&locks[left]);
    acquire(&locks[right]);
    release(&locks[right]);
    release(&locks[left]);
}

static void check(void) {}

#elif defined(TEST_TABLES)
enum { ENTRIES = 24 };
struct table {
    struct spin_lock lock;
    struct block *entries[ENTRIES];
};
static struct table files, nodes;

static __attribute__((noinline)) uint32_t used(struct table *table)
{
    uint32_t count = 0;
    acquire(&table->lock);
    for (int i = 0; i < ENTRIES; i++)
        count += table->entries[i] != 0;
    release(&table->lock);
    return count;
}

/* Puts a block into a table; its value says how many entries the other table had at that moment. */
static int put(struct table *table, struct table *other, struct block *block)
{
    int at = 0;
#ifdef MENDED
    block->value = used(other);
    acquire(&table->lock);
#else
    acquire(&table->lock);
    block->value = used(other);
#endif
    while (table->entries[at])
        at++;
    table->entries[at] = block;
    release(&table->lock);
    return at;
}

static void take(struct table *table, int at)
{
    acquire(&table->lock);
    struct block *block = table->entries[at];
    table->entries[at] = 0;
    release(&table->lock);
    block_free(block);
}

static void work(int cpu)
{
    (void)cpu;
    int node = put(&nodes, &files, block_alloc());
    int file = put(&files, &nodes, block_alloc());
    take(&files, file);
    take(&nodes, node);
}

static void check(void)
{
    if (used(&files) || used(&nodes))
        panic("an entry was left");
}

#elif defined(TEST_PETERSON)
static volatile uint32_t wants[2], turn, sum;

static void work(int cpu)
{
    if (cpu >= 2)
        return;
    wants[cpu] = 1;
    turn = (uint32_t)(1 - cpu);
#ifdef MENDED
    __asm__ volatile("mfence" ::: "memory");
#endif
    while (wants[1 - cpu] && turn == (uint32_t)(1 - cpu))
        __asm__ volatile("pause");
    sum = sum + 1;
    wants[cpu] = 0;
}

static void check(void)
{
    if (sum != 2)
        panic("an addition was lost");
}

#elif defined(TEST_SLEEP)
static volatile uint32_t sleeps, ready, woken;

static void between(void)
{
#ifdef MENDED
    __asm__ volatile("lock addl $0, (%%esp)" ::: "memory");
#endif
}

static void work(int cpu)
{
    if (cpu == 0) {
        sleeps = 1;
        between();
        if (!ready)
            while (!woken)
                __asm__ volatile("pause");
    } else if (cpu == 1) {
        ready = 1;
        between();
        if (sleeps)
            woken = 1;
    }
}

static void check(void) {}

#elif defined(TEST_TIMER)
static struct spin_lock lock;
static volatile uint32_t sum, ticks;

/* Arms the timer of a processor, which expires only when somebody lets it. */
static void prepare(int cpu)
{
    accept_interrupts(cpu);
    *apic(DIVISION) = 0xb;
    *apic(TIMER) = ONCE | VECTOR;
    *apic(COUNT) = NEVER_BY_ITSELF;
}

HOOKED void handler(void)
{
    acquire(&lock);
    ticks++;
    release(&lock);
    *apic(END_OF_INTERRUPT) = 0;
}

static void work(int cpu)
{
    (void)cpu;
    __asm__ volatile("sti\n nop" ::: "memory");
#ifdef MENDED
    __asm__ volatile("cli" ::: "memory");
#endif
    acquire(&lock);
    sum++;
    release(&lock);
    __asm__ volatile("sti\n nop\n cli" ::: "memory");
}

static void check(void)
{
    if (sum != CPUS)
        panic("an addition was lost");
}

#elif defined(TEST_CALL)
static volatile uint32_t version = 1, announced, known[CPUS], wrong;

static void prepare(int cpu) { accept_interrupts(cpu); }

HOOKED void handler(void)
{
    known[1] = version;
    *apic(END_OF_INTERRUPT) = 0;
}

static void work(int cpu)
{
    if (cpu == 0) {
        version = 2;
        *apic(COMMAND_REGISTER) = TO_ALL_OTHERS | VECTOR;
#ifdef MENDED
        while (known[1] != 2)
            __asm__ volatile("pause");
#endif
        announced = 1;
    } else if (cpu == 1) {
        __asm__ volatile("sti\n nop" ::: "memory");
        if (announced && known[1] != 2)
            wrong = 1;
    }
}

static void check(void)
{
    if (wrong)
        panic("a processor has not heard of what was announced");
}

#elif defined(TEST_PROGRAM)
enum { OPERATIONS = 16, VARIABLES = 4, LOCKS = 2, BLOCKS = 2, REGISTERS = 6 };
enum operation { END, LOAD, STORE, COPY, ADD, FETCH_ADD, EXCHANGE, COMPARE_EXCHANGE, LOCK, UNLOCK, LOCK_PLAIN, USE, FREE, FENCE };

struct instruction {
    uint32_t operation, variable, value, target;
};

struct instruction programs[CPUS][OPERATIONS] = {{{1, 0, 0, 0}}};
volatile uint32_t variables[VARIABLES];
struct spin_lock program_locks[LOCKS];
/* As if allocated before the test. */
struct block program_blocks[BLOCKS];
/* Of each processor its own, in words of memory that no other touches. */
uint32_t registers[CPUS][REGISTERS] __attribute__((aligned(64)));

static void work(int cpu)
{
    for (const struct instruction *at = programs[cpu]; at->operation != END; at++) {
        volatile uint32_t *variable = &variables[at->variable];
        uint32_t *target = &registers[cpu][at->target];
        switch (at->operation) {
        case LOAD:
            *target = *variable;
            break;
        case STORE:
            *variable = at->value;
            break;
        case COPY:
            *variable = *target;
            break;
        case ADD:
            __asm__ volatile("addl %1, %0" : "+m"(*variable) : "r"(at->value));
            break;
        case FETCH_ADD:
            *target = fetch_add(variable, at->value);
            break;
        case EXCHANGE:
            *target = exchange(variable, at->value);
            break;
        case COMPARE_EXCHANGE:
            // What is expected is in the upper half.
            *target = compare_exchange(variable, at->value >> 16, at->value & 0xffff);
            break;
        case LOCK:
            acquire(&program_locks[at->variable]);
            break;
        case LOCK_PLAIN:
            while (exchange(&program_locks[at->variable].held, 1))
                ;
            break;
        case UNLOCK:
            release(&program_locks[at->variable]);
            break;
        case USE:
            *target = *(volatile uint32_t *)&program_blocks[at->variable].value;
            break;
        case FREE:
            block_free(&program_blocks[at->variable]);
            break;
        case FENCE:
            __asm__ volatile("mfence" ::: "memory");
            break;
        }
    }
}

static void check(void) {}
#else
#error which test?
#endif

/* Where the test begins. */
HOOKED void part(int cpu)
{
    work(cpu);
    /* The last one looks at what all have left. */
    if (fetch_add(&ended, 1) == CPUS - 1)
        check();
}

/* Where it ends. */
HOOKED void done(int cpu)
{
    (void)cpu;
#ifdef POWERS_OFF
    __asm__ volatile("outw %w0, %w1" ::"a"(0x2000), "d"(0x604));
#endif
#ifdef TAKES_TURNS
    static volatile int turn;
    for (;;) {
        while (turn != cpu)
            __asm__ volatile("pause");
        turn = 1 - cpu;
    }
#endif
#ifdef NEVER_RESTS
    static struct spin_lock work;
    static volatile int waiting;
    for (;;) {
        acquire(&work);
        waiting++;
        release(&work);
    }
#endif
    halt();
}

HOOKED void processor(int cpu)
{
    if (cpu >= CPUS)
        halt();
#ifdef PREPARES
    prepare(cpu);
#endif
    fetch_add(&started, 1);
    while (started != CPUS)
        __asm__ volatile("pause");
    part(cpu);
    done(cpu);
}

/* --- starting --- */

enum { APIC = 0xfee00000, SPURIOUS = 0xf0, COMMAND = 0x300, TRAMPOLINE = 0x8000 };
extern uint8_t trampoline[], trampoline_end[];

void boot(void)
{
    for (uint8_t *from = trampoline, *to = (uint8_t *)TRAMPOLINE; from < trampoline_end;)
        *to++ = *from++;
    prepare_heap();
    *(volatile uint32_t *)(APIC + SPURIOUS) = 0x1ff;
    /* To all others: INIT, then where to start. */
    *(volatile uint32_t *)(APIC + COMMAND) = 0xc4500;
    *(volatile uint32_t *)(APIC + COMMAND) = 0xc4600 | TRAMPOLINE >> 12;
    processor(0);
}

/* The numbers of processors in the order in which they start. */
uint32_t next_processor = 1;

__asm__(".section .multiboot, \"a\"\n"
        ".align 4\n"
        ".long 0x1badb002, 0, -0x1badb002\n"
        ".text\n"
        ".globl start\n"
        "start:\n"
        "    cli\n"
        "    movl $stacks + 2048, %esp\n"
        "    call boot\n"
        "descriptors:\n"
        "    .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff\n"
        /* Runs at TRAMPOLINE, in real mode. */
        "    .code16\n"
        ".globl trampoline\n"
        "trampoline:\n"
        "    cli\n"
        "    xorw %ax, %ax\n"
        "    movw %ax, %ds\n"
        "    lgdtl 0x8000 + (in_reach - trampoline)\n"
        "    movl %cr0, %eax\n"
        "    orl $1, %eax\n"
        "    movl %eax, %cr0\n"
        "    ljmpl $8, $start_other\n"
        "in_reach:\n"
        "    .word 23\n"
        "    .long descriptors\n"
        ".globl trampoline_end\n"
        "trampoline_end:\n"
        "    .code32\n"
        "start_other:\n"
        "    movw $16, %ax\n"
        "    movw %ax, %ds\n"
        "    movw %ax, %es\n"
        "    movw %ax, %ss\n"
        "    movl $1, %eax\n"
        "    lock xaddl %eax, next_processor\n"
        "    movl %eax, %ecx\n"
        "    incl %ecx\n"
        "    shll $11, %ecx\n"
        "    leal stacks(%ecx), %esp\n"
        "    pushl %eax\n"
        "    call processor\n");
