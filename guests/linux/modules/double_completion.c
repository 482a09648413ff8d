/* Two that finish the same work, each looking whether the other has said so already: both say it. */
#include <linux/atomic.h>
#include <linux/completion.h>

#include "rockfall_module.h"

static DECLARE_COMPLETION(finished);
static atomic_t said = ATOMIC_INIT(0);

static long finish(unsigned long unused)
{
#ifdef MENDED
    if (atomic_xchg(&said, 1) == 0)
        complete(&finished);
#else
    if (atomic_read(&said) == 0) {
        atomic_set(&said, 1);
        complete(&finished);
    }
#endif
    return 0;
}

/* How many may pass. */
static long look(unsigned long unused)
{
    long passed = 0;

    while (try_wait_for_completion(&finished))
        passed++;
    return passed;
}

ROCKFALL_MODULE(double_completion, nothing_to_begin, nothing_to_end, finish, look);
