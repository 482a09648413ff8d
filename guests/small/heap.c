/* Pages, one at a time. */
#include "small.h"

static char pages[PAGES][PAGE] __attribute__((aligned(4096)));
__attribute__((unused)) static struct spin_lock heap_lock;
static char *free_page;

void *page_alloc(void)
{
#ifndef FAULT_OPEN_HEAP
    acquire(&heap_lock);
#endif
    char *page = free_page;
    if (page)
        free_page = *(char **)page;
#ifndef FAULT_OPEN_HEAP
    release(&heap_lock);
#endif
    if (!page)
        panic("no memory");
    return page;
}

void page_free(void *page)
{
#ifndef FAULT_OPEN_HEAP
    acquire(&heap_lock);
#endif
    *(char **)page = free_page;
    free_page = page;
#ifndef FAULT_OPEN_HEAP
    release(&heap_lock);
#endif
}


void heap_init(void)
{
    for (int i = 0; i < PAGES; i++)
        page_free(pages[i]);
}
