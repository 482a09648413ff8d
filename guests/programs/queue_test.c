/* Two consumers and one item at a time: whoever is woken looks again before taking. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/cond.h"
#include "../threadlib/thr.h"

static struct mutex lock = MUTEX_INIT;
static struct cond added = COND_INIT;
static int items;

static void add(void)
{
    mutex_lock(&lock);
    items++;
    cond_signal(&added);
    mutex_unlock(&lock);
}

static void *take(void *arg)
{
    mutex_lock(&lock);
#ifdef FAULT_MISSING_RECHECK
    if (items == 0)
#else
    while (items == 0)
#endif
        cond_wait(&added, &lock);
    items--;
    assert(items >= 0);
    mutex_unlock(&lock);
    return arg;
}

int main(void)
{
    thr_init(2048);
    int one = thr_create(take, NULL), two = thr_create(take, NULL);
    add();
    add();
    assert(thr_join(one, NULL) == 0);
    assert(thr_join(two, NULL) == 0);
    return 0;
}
