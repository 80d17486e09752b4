/* Counts the locks that a marks library takes, and says what fails. Included before the library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long lock_count;

static int count_lock(pthread_mutex_t *mutex)
{
    __atomic_add_fetch(&lock_count, 1, __ATOMIC_RELAXED);
    return pthread_mutex_lock(mutex);
}
#define pthread_mutex_lock count_lock

#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
            exit(1);                                                         \
        }                                                                    \
    } while (0)
