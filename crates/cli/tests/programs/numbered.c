/* `numbered THREADS COUNT`: each thread counts, all at once. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include <tompion/tompion.h>

static unsigned long count;
static pthread_barrier_t start;

static void *run(void *thread)
{
    pthread_barrier_wait(&start);
    for (unsigned long number = 1; number <= count; number++)
        TOMPION_EVENT(numbered, step, (u32, thread, (uintptr_t)thread), (u64, number, number));
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    pthread_t ids[64];

    count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    pthread_barrier_init(&start, NULL, threads);
    for (uintptr_t i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, run, (void *)i);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
