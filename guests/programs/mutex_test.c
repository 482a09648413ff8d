/* Two threads contend for a mutex, one of them twice, so that lock meets lock and lock meets unlock. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;
static volatile int inside;
static struct spawn_stack stack;

static void critical_section(void)
{
    mutex_lock(&lock);
    inside++;
    assert(inside == 1);
    inside--;
    mutex_unlock(&lock);
}

static void contender(void)
{
    critical_section();
    vanish();
}

int main(void)
{
    SPAWN(stack, contender);
    critical_section();
    critical_section();
    vanish();
}
