/* A balanced search tree (Adelson-Velsky and Landis, 1962) into which threads insert numbers. How an insertion is kept apart
   from others is left to the program. */
#ifndef HTM_AVL_H
#define HTM_AVL_H

#include "htm.h"

#define NODES (HTM_THREADS * HTM_ITERATIONS)

struct node {
    struct node *volatile child[2];
    int key;
    volatile int height;
};

static struct node nodes[NODES];
static struct node *volatile root;

/* Inserts this node, whoever else inserts. */
static void insert_safely(struct node *node);

static int height(struct node *node)
{
    return node ? node->height : 0;
}

static void measure(struct node *node)
{
    int left = height(node->child[0]), right = height(node->child[1]);
    node->height = 1 + (left > right ? left : right);
}

/* The child on this side comes to the top. */
static struct node *rotate(struct node *top, int side)
{
    struct node *up = top->child[side];
    top->child[side] = up->child[!side];
    up->child[!side] = top;
    measure(top);
    measure(up);
    return up;
}

static struct node *insert(struct node *top, struct node *node)
{
    if (!top)
        return node;
    int side = node->key > top->key;
    top->child[side] = insert(top->child[side], node);
    measure(top);
    if (height(top->child[side]) - height(top->child[!side]) < 2)
        return top;
    if ((node->key > top->child[side]->key) != side)
        top->child[side] = rotate(top->child[side], !side);
    return rotate(top, side);
}

/* The nodes below, all of which lie between the two keys; panics if the tree is none, or is not balanced. */
static int check(struct node *node, int above, int below)
{
    if (!node)
        return 0;
    assert(node->key > above && node->key < below);
    int left = height(node->child[0]), right = height(node->child[1]);
    assert(left - right < 2 && right - left < 2);
    return 1 + check(node->child[0], above, node->key) + check(node->child[1], node->key, below);
}

static void work(int thread, int iteration)
{
    int key = iteration * HTM_THREADS + thread;
    struct node *node = &nodes[key];
    node->key = key;
    node->height = 1;
    insert_safely(node);
}

int main(void)
{
    htm_run();
    assert(check(root, -1, NODES) == NODES);
    return 0;
}

#endif
