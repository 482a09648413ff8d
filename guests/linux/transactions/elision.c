/* A lock that is elided: threads count in transactions, and with the lock where these abort. The kernel must have told of the
   processor's transactions in /proc/cpuinfo. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#pragma GCC target("rtm")
#include <immintrin.h>

#define THREADS 2
#define ROUNDS 200
#define TRIES 3
#define LOCK_IS_TAKEN 0xff

static atomic_int taken;
static volatile long counter;
static atomic_long committed;

static int told_of_transactions(void)
{
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        found |= !strncmp(line, "flags", 5) && strstr(line, " rtm") != NULL;
    return found;
}

static int count_in_transaction(void)
{
    for (int i = 0; i < TRIES; i++) {
        if (_xbegin() == _XBEGIN_STARTED) {
            if (taken)
                _xabort(LOCK_IS_TAKEN);
            counter++;
            _xend();
            return 1;
        }
    }
    return 0;
}

static void *work(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (count_in_transaction()) {
            committed++;
            continue;
        }
        while (atomic_exchange(&taken, 1))
            continue;
        counter++;
        taken = 0;
    }
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];
    if (!told_of_transactions()) {
        printf("/proc/cpuinfo does not tell of rtm\n");
        return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("counted %ld, %ld of them in transactions\n", counter, (long)committed);
    return counter != THREADS * ROUNDS || committed == 0;
}
