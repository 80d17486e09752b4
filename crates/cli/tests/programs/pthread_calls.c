/*
 * Calls every function that libtompion-pthread.so wraps and says what came of it, thread by thread:
 *
 *     THREAD TID CALL STATUS
 *
 * with ECANCELED for a wait that was cancelled. But for the ids, the same is said with the wrapper
 * and without.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a thread has called; printed when all are done. */
struct log {
    const char *thread;
    pid_t tid;
    size_t used;
    char text[8192];
};

static struct log logs[64];
static int log_count;
static __thread struct log *mine;

static void say(const char *call, int status);

static void begin(const char *thread)
{
    mine = &logs[__atomic_fetch_add(&log_count, 1, __ATOMIC_SEQ_CST)];
    mine->thread = thread;
    mine->tid = gettid();
    if (thread != logs[0].thread)
        say("pthread_start", 0);
}

static void say(const char *call, int status)
{
    int n = snprintf(mine->text + mine->used, sizeof mine->text - mine->used, "%s %d %s %d\n", mine->thread,
                     (int)mine->tid, call, status);
    mine->used += n;
}

/* errno must be as the call left it: no function of this family changes it, but those that
 * return -1. */
#define ERROR(call, name)                                                  \
    do {                                                                   \
        int status_;                                                       \
        errno = 4711;                                                      \
        status_ = call;                                                    \
        if (errno != 4711)                                                 \
            printf("%s changed errno to %d\n", name, errno);               \
        say(name, status_);                                                \
    } while (0)
#define ERRNO(call, name)                                                  \
    do {                                                                   \
        errno = 4711;                                                      \
        if ((call) == 0 ? errno != 4711 : errno == 4711)                   \
            printf("%s has an odd errno: %d\n", name, errno);              \
        say(name, errno == 4711 ? 0 : errno);                              \
    } while (0)

static struct timespec in_a_moment(clockid_t clock, long ns)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += ns;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
static struct timespec soon(void) { return in_a_moment(CLOCK_REALTIME, 2000000); }
static struct timespec soon_monotonic(void) { return in_a_moment(CLOCK_MONOTONIC, 2000000); }
static struct timespec late(void) { return in_a_moment(CLOCK_REALTIME, 2000000000); }

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, checked;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem, ready;
static int woken;

static void mutexes(void)
{
    struct timespec until;
    pthread_mutexattr_t attributes;
    ERROR(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    ERROR(pthread_mutex_trylock(&mutex), "pthread_mutex_trylock");
    until = soon();
    ERROR(pthread_mutex_timedlock(&mutex, &until), "pthread_mutex_timedlock");
    until = soon_monotonic();
    ERROR(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until), "pthread_mutex_clocklock");
    ERROR(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &attributes);
    ERROR(pthread_mutex_unlock(&checked), "pthread_mutex_unlock");
    ERROR(pthread_mutex_lock(&checked), "pthread_mutex_lock");
    ERROR(pthread_mutex_lock(&checked), "pthread_mutex_lock");
    ERROR(pthread_mutex_unlock(&checked), "pthread_mutex_unlock");
    ERROR(pthread_mutex_trylock(&checked), "pthread_mutex_trylock");
    ERROR(pthread_mutex_unlock(&checked), "pthread_mutex_unlock");
    until = late();
    ERROR(pthread_mutex_timedlock(&checked, &until), "pthread_mutex_timedlock");
    ERROR(pthread_mutex_unlock(&checked), "pthread_mutex_unlock");
}

static void rwlocks(void)
{
    struct timespec until;
    ERROR(pthread_rwlock_rdlock(&rwlock), "pthread_rwlock_rdlock");
    ERROR(pthread_rwlock_tryrdlock(&rwlock), "pthread_rwlock_tryrdlock");
    ERROR(pthread_rwlock_trywrlock(&rwlock), "pthread_rwlock_trywrlock");
    until = soon();
    ERROR(pthread_rwlock_timedwrlock(&rwlock, &until), "pthread_rwlock_timedwrlock");
    until = soon_monotonic();
    ERROR(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &until), "pthread_rwlock_clockwrlock");
    ERROR(pthread_rwlock_unlock(&rwlock), "pthread_rwlock_unlock");
    ERROR(pthread_rwlock_unlock(&rwlock), "pthread_rwlock_unlock");
    ERROR(pthread_rwlock_wrlock(&rwlock), "pthread_rwlock_wrlock");
    ERROR(pthread_rwlock_rdlock(&rwlock), "pthread_rwlock_rdlock");
    ERROR(pthread_rwlock_unlock(&rwlock), "pthread_rwlock_unlock");
    until = late();
    ERROR(pthread_rwlock_timedrdlock(&rwlock, &until), "pthread_rwlock_timedrdlock");
    until = in_a_moment(CLOCK_MONOTONIC, 2000000000);
    ERROR(pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &until), "pthread_rwlock_clockrdlock");
    ERROR(pthread_rwlock_unlock(&rwlock), "pthread_rwlock_unlock");
    ERROR(pthread_rwlock_unlock(&rwlock), "pthread_rwlock_unlock");
}

static void semaphores(void)
{
    struct timespec until;
    ERRNO(sem_trywait(&sem), "sem_trywait");
    until = soon();
    ERRNO(sem_timedwait(&sem, &until), "sem_timedwait");
    until = soon_monotonic();
    ERRNO(sem_clockwait(&sem, CLOCK_MONOTONIC, &until), "sem_clockwait");
    ERRNO(sem_post(&sem), "sem_post");
    ERRNO(sem_wait(&sem), "sem_wait");
    ERRNO(sem_post(&sem), "sem_post");
    ERRNO(sem_trywait(&sem), "sem_trywait");
}

/* Which of the two is the serial thread is nobody's choice. */
static void meet(void)
{
    int status = pthread_barrier_wait(&barrier);
    say("pthread_barrier_wait", status == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : status);
}

static void *waiter(void *nothing)
{
    (void)nothing;
    begin("waiter");
    ERROR(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    ERRNO(sem_post(&ready), "sem_post");
    while (!woken)
        ERROR(pthread_cond_wait(&cond, &mutex), "pthread_cond_wait");
    ERROR(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
    meet();
    say("pthread_exit", 0);
    return (void *)0x77;
}

static void conditions(void)
{
    struct timespec until;
    pthread_t thread;
    void *result;
    ERROR(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    until = soon();
    ERROR(pthread_cond_timedwait(&cond, &mutex, &until), "pthread_cond_timedwait");
    until = soon_monotonic();
    ERROR(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &until), "pthread_cond_clockwait");
    ERROR(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
    ERROR(pthread_cond_signal(&cond), "pthread_cond_signal");
    ERROR(pthread_barrier_init(&barrier, NULL, 0), "pthread_barrier_init");
    ERROR(pthread_barrier_init(&barrier, NULL, 2), "pthread_barrier_init");
    ERROR(pthread_create(&thread, NULL, waiter, NULL), "pthread_create");
    ERRNO(sem_wait(&ready), "sem_wait");
    ERROR(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
    woken = 1;
    ERROR(pthread_cond_broadcast(&cond), "pthread_cond_broadcast");
    ERROR(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
    meet();
    ERROR(pthread_join(thread, &result), "pthread_join");
    if (result != (void *)0x77)
        printf("the thread returned %p\n", result);
}

/* -- Threads that end in the middle of something -- */

static pthread_t forever;

static void said(void *call)
{
    say(call, ECANCELED);
    say("pthread_exit", 0);
}

static void *cancelled(void *call)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until = in_a_moment(CLOCK_REALTIME, 0), mono;
    sem_t none;
    until.tv_sec += 600;
    mono = in_a_moment(CLOCK_MONOTONIC, 0);
    mono.tv_sec += 600;
    begin(call);
    sem_init(&none, 0, 0);
    pthread_mutex_lock(&own);
    say("pthread_mutex_lock", 0);
    pthread_cleanup_push(said, call);
    ERRNO(sem_post(&ready), "sem_post");
    if (!strcmp(call, "pthread_cond_wait"))
        pthread_cond_wait(&never, &own);
    else if (!strcmp(call, "pthread_cond_timedwait"))
        pthread_cond_timedwait(&never, &own, &until);
    else if (!strcmp(call, "pthread_cond_clockwait"))
        pthread_cond_clockwait(&never, &own, CLOCK_MONOTONIC, &mono);
    else if (!strcmp(call, "sem_wait"))
        sem_wait(&none);
    else if (!strcmp(call, "sem_timedwait"))
        sem_timedwait(&none, &until);
    else if (!strcmp(call, "sem_clockwait"))
        sem_clockwait(&none, CLOCK_MONOTONIC, &mono);
    else if (!strcmp(call, "pthread_join"))
        pthread_join(forever, NULL);
    else if (!strcmp(call, "pthread_timedjoin_np"))
        pthread_timedjoin_np(forever, NULL, &until);
    else if (!strcmp(call, "pthread_clockjoin_np"))
        pthread_clockjoin_np(forever, NULL, CLOCK_MONOTONIC, &mono);
    pthread_cleanup_pop(0);
    printf("%s came back\n", (char *)call);
    return NULL;
}

static void cancel(const char *call)
{
    pthread_t thread;
    void *result;
    ERROR(pthread_create(&thread, NULL, cancelled, (void *)call), "pthread_create");
    ERRNO(sem_wait(&ready), "sem_wait");
    /* Inside the call, or about to enter it, which is the same to a cancellation. */
    usleep(2000);
    ERROR(pthread_cancel(thread), "pthread_cancel");
    ERROR(pthread_join(thread, &result), "pthread_join");
    if (result != PTHREAD_CANCELED)
        printf("%s was not cancelled\n", call);
}

static void *sleeper(void *nothing)
{
    (void)nothing;
    begin("sleeper");
    ERRNO(sem_wait(&sem), "sem_wait");
    say("pthread_exit", 0);
    pthread_exit((void *)0x42);
}

static void *detached(void *nothing)
{
    (void)nothing;
    begin("detached");
    ERROR(pthread_detach(pthread_self()), "pthread_detach");
    ERROR(pthread_detach(pthread_self()), "pthread_detach");
    say("pthread_exit", 0);
    /* A destructor of thread-specific data runs after this. */
    return NULL;
}

static void after_exit(void *value)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    (void)value;
    ERROR(pthread_mutex_lock(&own), "pthread_mutex_lock");
    /* Before it, as main prints what was said. */
    say("sem_post", 0);
    sem_post(&ready);
}

static pthread_key_t key;

static void *with_data(void *nothing)
{
    pthread_setspecific(key, &key);
    return detached(nothing);
}

static void lives(void)
{
    struct timespec until;
    pthread_attr_t attributes;
    void *result = NULL;
    pthread_t thread;
    ERROR(pthread_create(&forever, NULL, sleeper, NULL), "pthread_create");
    ERROR(pthread_setname_np(forever, "sleeper"), "pthread_setname_np");
    ERROR(pthread_setname_np(forever, "a name that is too long"), "pthread_setname_np");
    ERROR(pthread_tryjoin_np(forever, &result), "pthread_tryjoin_np");
    until = soon();
    ERROR(pthread_timedjoin_np(forever, &result, &until), "pthread_timedjoin_np");
    until = soon_monotonic();
    ERROR(pthread_clockjoin_np(forever, &result, CLOCK_MONOTONIC, &until), "pthread_clockjoin_np");
    for (const char *const *call = (const char *const[]){"pthread_cond_wait", "pthread_cond_timedwait",
                                                         "pthread_cond_clockwait", "sem_wait",
                                                         "sem_timedwait", "sem_clockwait", "pthread_join",
                                                         "pthread_timedjoin_np", "pthread_clockjoin_np", NULL};
         *call; call++)
        cancel(*call);
    ERRNO(sem_post(&sem), "sem_post");
    ERROR(pthread_join(forever, &result), "pthread_join");
    if (result != (void *)0x42)
        printf("the sleeper returned %p\n", result);

    pthread_key_create(&key, after_exit);
    ERROR(pthread_create(&thread, NULL, with_data, NULL), "pthread_create");
    ERRNO(sem_wait(&ready), "sem_wait");

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 46);
    ERROR(pthread_create(&thread, &attributes, sleeper, NULL), "pthread_create");
}

int main(void)
{
    begin("main");
    sem_init(&sem, 0, 0);
    sem_init(&ready, 0, 0);
    mutexes();
    rwlocks();
    semaphores();
    conditions();
    lives();
    for (int i = 0; i < log_count; i++)
        fputs(logs[i].text, stdout);
    return 0;
}
