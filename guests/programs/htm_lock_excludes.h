/* No two threads are in the critical section of the elided lock at once. */
static volatile int inside;

static void work(int thread, int iteration)
{
    (void)thread, (void)iteration;
    elided_acquire();
    inside++;
    if (!_xtest())
        thr_yield(-1);
    assert(inside == 1);
    inside--;
    elided_release();
}

int main(void)
{
    htm_run();
    return 0;
}
