/* The kernel's heap. */
#ifndef HEAP_H
#define HEAP_H

#include <stddef.h>

void heap_init(void);
void *malloc(size_t size); /* NULL if memory is short */
void free(void *block);    /* NULL is fine */

#endif
