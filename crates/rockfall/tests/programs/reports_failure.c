/* Says how it ended by a function of the course's tests, and ends in good order all the same. */
#include "runtime/stdio.h"
#include "threadlib/thr.h"

enum { END_SUCCESS = 0, END_FAIL = 1 };
static volatile int count;
static volatile int reported = -1;

__attribute__((noinline)) void report_end(int type)
{
    reported = type;
}

static void *adds(void *unused)
{
    int before = count;
    count = before + 1;
    return unused;
}

int main(void)
{
    thr_init(4096);
    int one = thr_create(adds, 0), other = thr_create(adds, 0);
    thr_join(one, 0);
    thr_join(other, 0);
    report_end(count == 2 ? END_SUCCESS : END_FAIL);
    return 0;
}
