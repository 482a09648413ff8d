/*
 * A queue without locks, and correct: a producer appends, a consumer takes. Any number may push onto `incoming` with
 * compare-and-swap; the only consumer takes all of it with one exchange and turns it round.
 */
#include <stddef.h>

#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"

struct node {
    struct node *next;
    int value;
};

enum { NODES = 2 };

static void *volatile incoming;
static struct node nodes[NODES];
static struct spawn_stack stack;

static void push(struct node *n)
{
    void *old;
    do {
        old = incoming;
        n->next = old;
    } while (atomic_compare_swap_pointer(&incoming, old, n) != old);
}

static struct node *take_all(void)
{
    struct node *newest = atomic_exchange_pointer(&incoming, NULL), *oldest = NULL;
    while (newest) {
        struct node *n = newest;
        newest = n->next;
        n->next = oldest;
        oldest = n;
    }
    return oldest;
}

static void producer(void)
{
    for (int i = 0; i < NODES; i++) {
        nodes[i].value = i + 1;
        push(&nodes[i]);
    }
    vanish();
}

int main(void)
{
    int last = 0;
    SPAWN(stack, producer);
    for (int round = 0; round < 2; round++) {
        for (struct node *n = take_all(); n; n = n->next) {
            assert(n->value == last + 1);
            last = n->value;
        }
        yield(-1);
    }
    vanish();
}
