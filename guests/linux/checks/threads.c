/* Threads that share: mutexes, condition variables, a barrier, thread-local storage, and atomic counters. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 4
#define ROUNDS 500

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static atomic_long atomic_counter;
static long counter;
static int turn;
static __thread long own;
static __int128 wide __attribute__((aligned(16)));

static void *work(void *argument)
{
    int index = (int)(long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        atomic_counter++;
        own++;
        if (i % 64 == 0)
            sched_yield();
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 5; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != index)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        wide += ((__int128)1 << 64) + 1;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return (void *)own;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sum = 0;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    long expected = THREADS * ROUNDS;
    if (counter != expected || atomic_counter != expected || sum != expected || turn != 5 * THREADS ||
        (long)wide != 5 * THREADS || (long)(wide >> 64) != 5 * THREADS) {
        printf("counted %ld, %ld, %ld and %d instead of %ld\n", counter, (long)atomic_counter, sum, turn, expected);
        return 1;
    }
    return 0;
}
