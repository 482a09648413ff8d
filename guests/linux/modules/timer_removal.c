/* A timer that is taken away while its handler still runs on another processor, and with it what the handler works on. */
#include <linux/completion.h>
#include <linux/jiffies.h>
#include <linux/timer.h>

#include "rockfall_module.h"

static struct filled *shared;
static long seen;
static DECLARE_COMPLETION(fired);
static struct timer_list timer;

static void handler(struct timer_list *unused)
{
    struct filled *object = shared;

    complete(&fired);
    if (filled_look(object))
        seen = -EIO;
}

static int begin(void)
{
    shared = filled_new();
    timer_setup(&timer, handler, TIMER_PINNED);
    return shared ? 0 : -ENOMEM;
}

/* The timer belongs to the processor that arms it. */
static long arm(unsigned long unused)
{
    mod_timer(&timer, jiffies + 1);
    return 0;
}

static long remove_when_fired(unsigned long unused)
{
    wait_for_completion(&fired);
#ifdef MENDED
    del_timer_sync(&timer);
#else
    del_timer(&timer);
#endif
    kfree(shared);
    shared = NULL;
    return 0;
}

static long look(unsigned long unused)
{
    del_timer_sync(&timer);
    return seen;
}

static void end(void)
{
    del_timer_sync(&timer);
    kfree(shared);
}

ROCKFALL_MODULE(timer_removal, begin, end, arm, remove_when_fired, look);
