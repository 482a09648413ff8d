/* What the processor does when no thread has anything to do, in the kernels whose idle thread lives in user space. */
int main(void)
{
    for (;;)
        asm volatile("pause");
}
