/* Threads whose critical sections touch nothing in common never have to take the elided lock. */
static void work(int thread, int iteration)
{
    (void)thread, (void)iteration;
    elided_acquire();
    assert(_xtest());
    elided_release();
}

int main(void)
{
    htm_run();
    return 0;
}
