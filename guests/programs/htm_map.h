/* A map of numbers with a list for each of its buckets, into which threads insert. When there are more entries than buckets,
   the buckets become twice as many. How an insertion is kept apart from others is left to the program, as is with how many
   buckets the map begins. */
#ifndef HTM_MAP_H
#define HTM_MAP_H

#include "htm.h"

#define ENTRIES (HTM_THREADS * HTM_ITERATIONS)
#define BUCKETS_MAX 64

struct entry {
    struct entry *volatile next;
    int key;
};

static struct entry entries[ENTRIES];
static struct entry *volatile tables[2][BUCKETS_MAX];
static volatile int table, buckets = MAP_BUCKETS, size;

/* Inserts this entry, whoever else inserts. */
static void insert_safely(struct entry *entry);

static void link(int to, int count, struct entry *entry)
{
    struct entry *volatile *bucket = &tables[to][entry->key % count];
    entry->next = *bucket;
    *bucket = entry;
}

static void grow(void)
{
    int to = !table, count = buckets * 2;
    for (int i = 0; i < count; i++)
        tables[to][i] = NULL;
    for (int i = 0; i < buckets; i++) {
        struct entry *entry = tables[table][i];
        while (entry) {
            struct entry *next = entry->next;
            link(to, count, entry);
            entry = next;
        }
    }
    table = to;
    buckets = count;
}

static void insert(struct entry *entry)
{
    link(table, buckets, entry);
    if (++size > buckets && buckets * 2 <= BUCKETS_MAX)
        grow();
}

static int contains(int key)
{
    struct entry *entry = tables[table][key % buckets];
    while (entry && entry->key != key)
        entry = entry->next;
    return entry != NULL;
}

static void work(int thread, int iteration)
{
    int key = iteration * HTM_THREADS + thread;
    entries[key].key = key;
    insert_safely(&entries[key]);
}

int main(void)
{
    htm_run();
    assert(size == ENTRIES);
    for (int key = 0; key < ENTRIES; key++)
        assert(contains(key));
    return 0;
}

#endif
