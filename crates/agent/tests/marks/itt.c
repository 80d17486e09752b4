/* Limits of names and counters of the ITT library, which is part of this program. */
#include "locks.h"

#include "../../preload/itt.c"

enum { THREADS = 8, ROUNDS = 200 };
static pthread_barrier_t barrier;
static void *made[THREADS][ROUNDS];

static void *make_counters(void *of)
{
    void **counters = of;
    char name[32];
    int i;
    for (i = 0; i < ROUNDS; ++i) {
        snprintf(name, sizeof name, "counter %d", i);
        pthread_barrier_wait(&barrier);
        counters[i] = counter_create(name, "app");
    }
    return NULL;
}

/* Threads that make a counter at the same time get the same one. */
static void counters_are_there_once(void)
{
    pthread_t threads[THREADS];
    int i, round;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (i = 0; i < THREADS; ++i)
        EXPECT(pthread_create(&threads[i], NULL, make_counters, made[i]) == 0);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    for (i = 1; i < THREADS; ++i) {
        for (round = 0; round < ROUNDS; ++round)
            EXPECT(made[i][round] && made[i][round] == made[0][round]);
    }
}

/* A program may use what it gets beyond the limit as it uses any other. */
static void handles_are_limited(void)
{
    struct itt_domain *first = domain_create("first"), *more;
    const struct itt_id none = {0, 0, 0};
    struct itt_string *string;
    unsigned long before;
    char name[32];
    int i;
    for (i = 0; i < MAX_GIVEN + 10; ++i) {
        snprintf(name, sizeof name, "string %d", i);
        EXPECT(string_create(name));
    }
    EXPECT(given_count == MAX_GIVEN);
    more = domain_create("one more");
    string = string_create("one more");
    EXPECT(first->extra2 && domain_create("first") == first && more && more != first && more->flags);
    EXPECT(string && !strcmp(string->text, "unnamed") && string_create("another") == string);
    EXPECT(!counter_create("one more", NULL) && !event_create("one more", 8));
    EXPECT(!heap_function_create("one more", NULL));
    task_begin(more, none, none, string);
    EXPECT(thread_spans->depth == 1);
    task_end(more);
    EXPECT(thread_spans->depth == 0);
    before = lock_count;
    frame_create("one more");
    counter_inc_v3(more, string);
    counter_inc_v3(more, string);
    EXPECT(lock_count - before <= 2); /* the event and the counter, once */
}

int main(void)
{
    counters_are_there_once();
    handles_are_limited();
    return 0;
}
