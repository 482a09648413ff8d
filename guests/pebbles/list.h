/* A doubly linked ring through fields of the things it links. An element that is on no list points to itself. */
#ifndef LIST_H
#define LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "panic.h"

struct list {
    struct list *next, *prev;
};

#define LIST_INIT(name) {&(name), &(name)}

/* The struct of type `type` whose member `field` is *link. */
#define list_entry(link, type, field) ((type *)((char *)(link) - offsetof(type, field)))

#define list_for_each(link, head) for (struct list *link = (head)->next; link != (head); link = link->next)

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_add(struct list *head, struct list *link)
{
    assert(list_empty(link));
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

#endif
