/* Each transaction writes what only its own thread writes; each fallback reads everything. Transactions conflict with the
   fallbacks of others, and neither transactions nor fallbacks with each other (Blum 2018, figure 6.5, for any size). */
#include "htm.h"

static volatile int cells[HTM_THREADS];

static void work(int thread, int iteration)
{
    (void)iteration;
    if (_xbegin() == _XBEGIN_STARTED) {
        cells[thread]++;
        _xend();
        return;
    }
    int sum = 0;
    for (int i = 0; i < HTM_THREADS; i++)
        sum += cells[i];
    assert(sum < HTM_THREADS * HTM_ITERATIONS);
}

int main(void)
{
    htm_run();
    return 0;
}
