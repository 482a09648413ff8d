/* Work that was queued for later, and an object that goes away without asking whether the work is done. */
#include <linux/workqueue.h>

#include "rockfall_module.h"

static struct filled *shared;
static long seen;

static void work_on(struct work_struct *unused)
{
    struct filled *object = READ_ONCE(shared);

    if (object && filled_look(object))
        seen = -EIO;
}

static DECLARE_WORK(work, work_on);

static long fill(unsigned long unused)
{
    WRITE_ONCE(shared, filled_new());
    return shared ? 0 : -ENOMEM;
}

static long queue(unsigned long unused)
{
    queue_work_on(0, system_wq, &work);
    flush_work(&work);
    return 0;
}

static long leave(unsigned long unused)
{
    struct filled *object = READ_ONCE(shared);

    WRITE_ONCE(shared, NULL);
#ifdef MENDED
    cancel_work_sync(&work);
#endif
    kfree(object);
    return 0;
}

static long look(unsigned long unused) { return seen; }

static void end(void)
{
    cancel_work_sync(&work);
    kfree(shared);
}

ROCKFALL_MODULE(work_after_free, nothing_to_begin, end, fill, queue, leave, look);
