/* Many threads that write, made first, and one that looks: `writer`, `checker` and WRITERS are the includer's. */
int main(void)
{
    int tids[WRITERS + 1];
    thr_init(1024);
    for (int i = 0; i < WRITERS; i++)
        tids[i] = thr_create(writer, NULL);
    tids[WRITERS] = thr_create(checker, NULL);
    for (int i = 0; i <= WRITERS; i++)
        assert(thr_join(tids[i], NULL) == 0);
    return 0;
}
