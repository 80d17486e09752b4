/* Threads that record texts of many lengths, for ever or as often as the argument says. */
#include <pthread.h>

#include "threads.h"

static long rounds;

static void *work(void *of)
{
    const int thread = (int)(intptr_t)of;
    char text[2001];
    long i;
    memset(text, 'a' + thread, sizeof text);
    for (i = 0; rounds == 0 || i < rounds; ++i) {
        const int length = (int)(i % (int)sizeof text);
        text[length] = 0;
        tracepoint(threads, text, thread, (int)i, length, text);
        text[length] = 'a' + thread;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    intptr_t i;
    rounds = argc > 1 ? atol(argv[1]) : 0;
    for (i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    return 0;
}
