/* Our own stand-in with the names that kernels/xv6.toml relies on. */
#define REAL __attribute__((noinline, used))
typedef unsigned int uint;
enum procstate { UNUSED, EMBRYO, SLEEPING, RUNNABLE, RUNNING, ZOMBIE };
struct context { uint edi, esi, ebx, ebp, eip; };
struct trapframe { uint eax, trapno; unsigned short cs; };
struct proc { char *kstack; enum procstate state; int pid; struct trapframe *tf; struct context *context; char name[16]; };
struct cpu { int ncli; struct proc *proc; };
struct spinlock { uint locked; };
struct sleeplock { uint locked; struct spinlock lk; };
struct cpu cpus[8];
#ifndef NO_BUFFERS
struct buf { int flags; struct sleeplock lock; };
struct { struct spinlock lock; struct buf buf[2]; } bcache;
#endif
struct { struct spinlock lock; } ptable;
uint ticks;
volatile int use;
REAL struct proc *allocproc(void) { return use ? cpus[0].proc : 0; }
REAL void swtch(void) { use++; }
REAL void sched(void) { swtch(); use++; }
REAL void forkret(void) { use++; }
REAL void yield(void) { sched(); use++; }
REAL void trap(struct trapframe *tf) { use = tf->trapno; }
REAL void iderw(void) { use++; }
REAL void consoleread(void) { use++; }
REAL void acquire(struct spinlock *lk) { lk->locked = 1; }
REAL void release(struct spinlock *lk) { lk->locked = 0; }
REAL void acquiresleep(struct sleeplock *lk) { lk->locked = 1; }
REAL void releasesleep(struct sleeplock *lk) { lk->locked = 0; }
REAL char *kalloc(void) { return (char *)use; }
REAL void kfree(char *v) { use = *v; }
REAL void panic(char *s) { use = *s; }
REAL void syscall(void) { use++; }
REAL int exec(char *path, char **argv) { return use + *path + **argv; }
#define PLAIN(name) REAL void name(void) { use++; }
PLAIN(scheduler) PLAIN(alltraps) PLAIN(trapret) PLAIN(mycpu) PLAIN(myproc) PLAIN(cpuid) PLAIN(pushcli) PLAIN(popcli)
REAL int wait(void) { return use; }
PLAIN(kinit1) PLAIN(kinit2)
void deallocuvm(int to) { use = to; }
REAL void allocuvm(int to) { deallocuvm(to + 1); use++; }
PLAIN(sys_sleep) PLAIN(holding) PLAIN(getcallerpcs) PLAIN(switchuvm) PLAIN(switchkvm) PLAIN(lapiceoi)
void start(void)
{
    allocproc();
    ticks++;
    for (;;)
        ;
}
