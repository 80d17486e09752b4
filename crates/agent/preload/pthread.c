/*
 * libtompion-pthread.so: locks, waits and the lives of threads as events, without recompiling the
 * program.
 *
 *     LD_PRELOAD=libtompion-pthread.so ./program       (`tompion record --preload pthread` does it)
 *
 * Built as malloc.c is.
 *
 * The events of mutexes have the names and fields that LTTng's pthread wrapper gives them, provider
 * lttng_ust_pthread; all others, which it does not know, follow their manner:
 *
 *     NAME_req, NAME_acq      before and after a call that may wait for a lock
 *     NAME_begin, NAME_end    before and after any other call that may wait
 *     NAME                    after any other call
 *
 * `status` is what the function returned, or errno for the functions that return -1: 0, EBUSY,
 * ETIMEDOUT... A wait that ends because the thread is cancelled has status ECANCELED. What wakes
 * other threads (signal, broadcast, post, and create's own start) is recorded before the call where
 * that is possible, so that no event of the thread that wakes comes first; unlock is recorded after
 * it, as LTTng does, so that the next owner's NAME_acq can stand before it, by a moment.
 *
 * Functions of the program behave as without this library: same results, same errno, same
 * cancellation points. No lock is held at any time, so fork() needs no care. Recording itself calls
 * none of these functions; the agent's own thread is recognized by its creator and is left alone.
 *
 * A thread's id (pthread_t) is told by pthread_start, not by pthread_create, which could only read
 * it from the caller's memory after the call: by then the new thread may have freed that memory.
 * start_routine, arg and creator say which creation it was.
 *
 * The next library's functions are looked up at the first call, which may come before any
 * constructor of ours; on the C libraries that we support, dlsym needs nothing from here for that.
 * Calls before our constructor are not recorded. Functions that the C library calls within itself
 * (<threads.h>, stdio's locks) are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WRAPPER_IS_PASSIVE
#include "wrapper.h"

#define EXPORT __attribute__((visibility("default")))

/* -- The next library's functions -- */

/* Name, result, parameters. Of these, the C library also has functions for programs of before
 * 2003. */
#define VERSIONED_FUNCTIONS(F)                                                                         \
    F(pthread_cond_wait, int, (pthread_cond_t *, pthread_mutex_t *))                                   \
    F(pthread_cond_timedwait, int, (pthread_cond_t *, pthread_mutex_t *, const struct timespec *))     \
    F(pthread_cond_signal, int, (pthread_cond_t *))                                                    \
    F(pthread_cond_broadcast, int, (pthread_cond_t *))

#define OTHER_FUNCTIONS(F)                                                                             \
    F(pthread_mutex_lock, int, (pthread_mutex_t *))                                                    \
    F(pthread_mutex_trylock, int, (pthread_mutex_t *))                                                 \
    F(pthread_mutex_timedlock, int, (pthread_mutex_t *, const struct timespec *))                      \
    F(pthread_mutex_clocklock, int, (pthread_mutex_t *, clockid_t, const struct timespec *))           \
    F(pthread_mutex_unlock, int, (pthread_mutex_t *))                                                  \
    F(pthread_rwlock_rdlock, int, (pthread_rwlock_t *))                                                \
    F(pthread_rwlock_wrlock, int, (pthread_rwlock_t *))                                                \
    F(pthread_rwlock_tryrdlock, int, (pthread_rwlock_t *))                                             \
    F(pthread_rwlock_trywrlock, int, (pthread_rwlock_t *))                                             \
    F(pthread_rwlock_timedrdlock, int, (pthread_rwlock_t *, const struct timespec *))                  \
    F(pthread_rwlock_timedwrlock, int, (pthread_rwlock_t *, const struct timespec *))                  \
    F(pthread_rwlock_clockrdlock, int, (pthread_rwlock_t *, clockid_t, const struct timespec *))       \
    F(pthread_rwlock_clockwrlock, int, (pthread_rwlock_t *, clockid_t, const struct timespec *))       \
    F(pthread_rwlock_unlock, int, (pthread_rwlock_t *))                                                \
    F(pthread_cond_clockwait, int,                                                                     \
      (pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))                       \
    F(pthread_barrier_init, int, (pthread_barrier_t *, const pthread_barrierattr_t *, unsigned))       \
    F(pthread_barrier_wait, int, (pthread_barrier_t *))                                                \
    F(sem_wait, int, (sem_t *))                                                                        \
    F(sem_trywait, int, (sem_t *))                                                                     \
    F(sem_timedwait, int, (sem_t *, const struct timespec *))                                          \
    F(sem_clockwait, int, (sem_t *, clockid_t, const struct timespec *))                               \
    F(sem_post, int, (sem_t *))                                                                        \
    F(pthread_create, int, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))           \
    F(pthread_exit, void, (void *))                                                                    \
    F(pthread_cancel, int, (pthread_t))                                                                \
    F(pthread_detach, int, (pthread_t))                                                                \
    F(pthread_join, int, (pthread_t, void **))                                                         \
    F(pthread_tryjoin_np, int, (pthread_t, void **))                                                   \
    F(pthread_timedjoin_np, int, (pthread_t, void **, const struct timespec *))                        \
    F(pthread_clockjoin_np, int, (pthread_t, void **, clockid_t, const struct timespec *))             \
    F(pthread_setname_np, int, (pthread_t, const char *))                                              \
    F(malloc, void *, (size_t))                                                                        \
    F(free, void, (void *))

#define POINTER(name, result, parameters) result(*name) parameters;
static struct {
    VERSIONED_FUNCTIONS(POINTER)
    OTHER_FUNCTIONS(POINTER)
} next;

static uintptr_t agent_begin, agent_end; /* where libtompion.so is loaded */
static atomic_int looked_up;

/* Finds the library, by its name: an address in C may be that of a stub in the program. */
static int find_agent(struct dl_phdr_info *object, size_t size, void *unused)
{
    static const char wanted[] = "/libtompion.so.0";
    const size_t length = strlen(object->dlpi_name), tail = sizeof wanted - 1;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    (void)unused;
    if (length < tail || memcmp(object->dlpi_name + length - tail, wanted, tail) != 0)
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        begin = start < begin ? start : begin;
        end = start + segment->p_memsz > end ? start + segment->p_memsz : end;
    }
    agent_begin = begin;
    agent_end = end;
    return 1;
}

/* Threads may look up at the same time: all find and write the same. */
static __attribute__((noinline)) void look_up(void)
{
    const int error = errno;
#define FIND(name, result, parameters) \
    __atomic_store_n((void **)&next.name, dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED);
#define FIND_VERSION(name, result, parameters)                            \
    {                                                                     \
        void *function = dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2");         \
        if (!function)                                                    \
            function = dlsym(RTLD_NEXT, #name);                           \
        __atomic_store_n((void **)&next.name, function, __ATOMIC_RELAXED); \
    }
    VERSIONED_FUNCTIONS(FIND_VERSION)
    OTHER_FUNCTIONS(FIND)
    dl_iterate_phdr(find_agent, NULL);
    /* Pairs with the acquire load in NEXT: a thread that sees it sees the functions. */
    atomic_store_explicit(&looked_up, 1, memory_order_release);
    errno = error;
}

#define NEXT(name)                                                                                          \
    (__builtin_expect(atomic_load_explicit(&looked_up, memory_order_acquire), 1) ? (void)0 : look_up(), \
     next.name)

#define ENABLED(event) TOMPION_EVENT_ENABLED(lttng_ust_pthread, event)

/* What a function that returns -1 and sets errno says; errno itself is not changed by events. */
static int status_of(int result)
{
    return result == 0 ? 0 : errno;
}

/* -- Mutexes -- */

/* A function that waits for a lock: before and after. */
#define ACQUIRE(event, object, call)                                                                   \
    int status;                                                                                        \
    TOMPION_EVENT(lttng_ust_pthread, event##_req, (x64, object, object));                              \
    status = call;                                                                                     \
    TOMPION_EVENT(lttng_ust_pthread, event##_acq, (x64, object, object), (i32, status, status));       \
    return status

/* A function that does not wait. */
#define AFTER(event, object, call)                                                                     \
    const int status = call;                                                                           \
    TOMPION_EVENT(lttng_ust_pthread, event, (x64, object, object), (i32, status, status));             \
    return status

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    ACQUIRE(pthread_mutex_lock, mutex, NEXT(pthread_mutex_lock)(mutex));
}

EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    AFTER(pthread_mutex_trylock, mutex, NEXT(pthread_mutex_trylock)(mutex));
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    ACQUIRE(pthread_mutex_timedlock, mutex, NEXT(pthread_mutex_timedlock)(mutex, until));
}

EXPORT int pthread_mutex_clocklock(pthread_mutex_t *restrict mutex, clockid_t clock,
                                   const struct timespec *restrict until)
{
    ACQUIRE(pthread_mutex_clocklock, mutex, NEXT(pthread_mutex_clocklock)(mutex, clock, until));
}

EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    AFTER(pthread_mutex_unlock, mutex, NEXT(pthread_mutex_unlock)(mutex));
}

/* -- Read-write locks -- */

EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *rwlock)
{
    ACQUIRE(pthread_rwlock_rdlock, rwlock, NEXT(pthread_rwlock_rdlock)(rwlock));
}

EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *rwlock)
{
    ACQUIRE(pthread_rwlock_wrlock, rwlock, NEXT(pthread_rwlock_wrlock)(rwlock));
}

EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *rwlock)
{
    AFTER(pthread_rwlock_tryrdlock, rwlock, NEXT(pthread_rwlock_tryrdlock)(rwlock));
}

EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *rwlock)
{
    AFTER(pthread_rwlock_trywrlock, rwlock, NEXT(pthread_rwlock_trywrlock)(rwlock));
}

EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict rwlock, const struct timespec *restrict until)
{
    ACQUIRE(pthread_rwlock_timedrdlock, rwlock, NEXT(pthread_rwlock_timedrdlock)(rwlock, until));
}

EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict rwlock, const struct timespec *restrict until)
{
    ACQUIRE(pthread_rwlock_timedwrlock, rwlock, NEXT(pthread_rwlock_timedwrlock)(rwlock, until));
}

EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *restrict rwlock, clockid_t clock,
                                      const struct timespec *restrict until)
{
    ACQUIRE(pthread_rwlock_clockrdlock, rwlock, NEXT(pthread_rwlock_clockrdlock)(rwlock, clock, until));
}

EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *restrict rwlock, clockid_t clock,
                                      const struct timespec *restrict until)
{
    ACQUIRE(pthread_rwlock_clockwrlock, rwlock, NEXT(pthread_rwlock_clockwrlock)(rwlock, clock, until));
}

EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *rwlock)
{
    AFTER(pthread_rwlock_unlock, rwlock, NEXT(pthread_rwlock_unlock)(rwlock));
}

/* -- Waits that a cancellation can end -- */

/*
 * The end of such a wait is recorded by a cleanup handler if the thread is cancelled in it. The
 * handler costs something; unless the end is recorded, the call is made plainly.
 */
#define WAIT(event, cleanup, argument, call, end)      \
    if (ENABLED(event##_end)) {                        \
        pthread_cleanup_push(cleanup, argument);       \
        status = call;                                 \
        pthread_cleanup_pop(0);                        \
        end                                            \
    } else {                                           \
        status = call;                                 \
    }                                                  \
    return status

/* -- Condition variables -- */

struct cond_wait {
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
};

#define COND_WAIT(event, call)                                                                         \
    static void event##_cancelled(void *argument)                                                      \
    {                                                                                                  \
        const struct cond_wait *wait = argument;                                                       \
        TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, cond, wait->cond), (x64, mutex, wait->mutex), \
                      (i32, status, ECANCELED));                                                       \
    }                                                                                                  \
    static int event##_recorded(struct cond_wait wait, clockid_t clock, const struct timespec *until)  \
    {                                                                                                  \
        int status;                                                                                    \
        (void)clock, (void)until;                                                                      \
        TOMPION_EVENT(lttng_ust_pthread, event##_begin, (x64, cond, wait.cond), (x64, mutex, wait.mutex)); \
        WAIT(event, event##_cancelled, &wait, call,                                                    \
             TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, cond, wait.cond),                     \
                           (x64, mutex, wait.mutex), (i32, status, status)););                         \
    }

COND_WAIT(pthread_cond_wait, NEXT(pthread_cond_wait)(wait.cond, wait.mutex))
COND_WAIT(pthread_cond_timedwait, NEXT(pthread_cond_timedwait)(wait.cond, wait.mutex, until))
COND_WAIT(pthread_cond_clockwait, NEXT(pthread_cond_clockwait)(wait.cond, wait.mutex, clock, until))

EXPORT int pthread_cond_wait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex)
{
    return pthread_cond_wait_recorded((struct cond_wait){cond, mutex}, 0, NULL);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict until)
{
    return pthread_cond_timedwait_recorded((struct cond_wait){cond, mutex}, 0, until);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                                  clockid_t clock, const struct timespec *restrict until)
{
    return pthread_cond_clockwait_recorded((struct cond_wait){cond, mutex}, clock, until);
}

EXPORT int pthread_cond_signal(pthread_cond_t *cond)
{
    TOMPION_EVENT(lttng_ust_pthread, pthread_cond_signal, (x64, cond, cond));
    return NEXT(pthread_cond_signal)(cond);
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *cond)
{
    TOMPION_EVENT(lttng_ust_pthread, pthread_cond_broadcast, (x64, cond, cond));
    return NEXT(pthread_cond_broadcast)(cond);
}

/* -- Barriers -- */

EXPORT int pthread_barrier_init(pthread_barrier_t *restrict barrier,
                                const pthread_barrierattr_t *restrict attributes, unsigned count)
{
    const int status = NEXT(pthread_barrier_init)(barrier, attributes, count);
    TOMPION_EVENT(lttng_ust_pthread, pthread_barrier_init, (x64, barrier, barrier), (u32, count, count),
                  (i32, status, status));
    return status;
}

/* In one of the threads, the status is PTHREAD_BARRIER_SERIAL_THREAD, -1. */
EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
    int status;
    TOMPION_EVENT(lttng_ust_pthread, pthread_barrier_wait_begin, (x64, barrier, barrier));
    status = NEXT(pthread_barrier_wait)(barrier);
    TOMPION_EVENT(lttng_ust_pthread, pthread_barrier_wait_end, (x64, barrier, barrier),
                  (i32, status, status));
    return status;
}

/* -- Semaphores -- */

#define SEM_WAIT(event, call)                                                                          \
    static void event##_cancelled(void *sem)                                                           \
    {                                                                                                  \
        TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, sem, sem), (i32, status, ECANCELED));      \
    }                                                                                                  \
    static int event##_recorded(sem_t *sem, clockid_t clock, const struct timespec *until)             \
    {                                                                                                  \
        int status;                                                                                    \
        (void)clock, (void)until;                                                                      \
        TOMPION_EVENT(lttng_ust_pthread, event##_begin, (x64, sem, sem));                              \
        WAIT(event, event##_cancelled, sem, call,                                                      \
             TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, sem, sem),                            \
                           (i32, status, status_of(status))););                                        \
    }

SEM_WAIT(sem_wait, NEXT(sem_wait)(sem))
SEM_WAIT(sem_timedwait, NEXT(sem_timedwait)(sem, until))
SEM_WAIT(sem_clockwait, NEXT(sem_clockwait)(sem, clock, until))

EXPORT int sem_wait(sem_t *sem)
{
    return sem_wait_recorded(sem, 0, NULL);
}

EXPORT int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until)
{
    return sem_timedwait_recorded(sem, 0, until);
}

EXPORT int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict until)
{
    return sem_clockwait_recorded(sem, clock, until);
}

EXPORT int sem_trywait(sem_t *sem)
{
    const int result = NEXT(sem_trywait)(sem);
    TOMPION_EVENT(lttng_ust_pthread, sem_trywait, (x64, sem, sem), (i32, status, status_of(result)));
    return result;
}

EXPORT int sem_post(sem_t *sem)
{
    TOMPION_EVENT(lttng_ust_pthread, sem_post, (x64, sem, sem));
    return NEXT(sem_post)(sem);
}

/* -- Lives of threads -- */

struct start {
    void *(*routine)(void *);
    void *argument;
    pthread_t creator;
};

/* Set once the thread's exit was recorded. */
static THREAD_LOCAL int exited;

static void record_exit(void *result)
{
    if (exited)
        return;
    exited = 1;
    TOMPION_EVENT(lttng_ust_pthread, pthread_exit, (x64, thread, pthread_self()), (x64, result, result));
}

/* The thread was cancelled, or has called pthread_exit, which has been recorded. */
static void ended(void *nothing)
{
    (void)nothing;
    record_exit(PTHREAD_CANCELED);
}

/* Where threads start. */
static void *run_thread(void *argument)
{
    const struct start start = *(struct start *)argument;
    void *result;
    NEXT(free)(argument);
    TOMPION_EVENT(lttng_ust_pthread, pthread_start, (x64, thread, pthread_self()),
                  (x64, start_routine, start.routine), (x64, arg, start.argument),
                  (x64, creator, start.creator));
    pthread_cleanup_push(ended, NULL);
    result = start.routine(start.argument);
    record_exit(result);
    pthread_cleanup_pop(0);
    return result;
}

static int is_agents(const void *caller)
{
    return (uintptr_t)caller >= agent_begin && (uintptr_t)caller < agent_end;
}

/* The memory between the two threads is the next library's: the program's malloc may be traced
 * itself. */
EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                          void *(*routine)(void *), void *restrict argument)
{
    const int error = errno;
    struct start *start;
    int status;
    int (*const create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NEXT(pthread_create);
    if (is_agents(__builtin_return_address(0)))
        return create(thread, attributes, routine, argument);
    start = NEXT(malloc) ? NEXT(malloc)(sizeof *start) : NULL;
    errno = error;
    if (start) {
        *start = (struct start){routine, argument, pthread_self()};
        status = create(thread, attributes, run_thread, start);
        if (status != 0)
            NEXT(free)(start);
    } else {
        status = create(thread, attributes, routine, argument);
    }
    TOMPION_EVENT(lttng_ust_pthread, pthread_create, (x64, start_routine, routine), (x64, arg, argument),
                  (i32, status, status));
    return status;
}

EXPORT __attribute__((noreturn)) void pthread_exit(void *result)
{
    record_exit(result);
    NEXT(pthread_exit)(result);
    __builtin_unreachable();
}

EXPORT int pthread_cancel(pthread_t thread)
{
    TOMPION_EVENT(lttng_ust_pthread, pthread_cancel, (x64, thread, thread));
    return NEXT(pthread_cancel)(thread);
}

EXPORT int pthread_detach(pthread_t thread)
{
    AFTER(pthread_detach, thread, NEXT(pthread_detach)(thread));
}

EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
    const int status = NEXT(pthread_setname_np)(thread, name);
    TOMPION_EVENT(lttng_ust_pthread, pthread_setname_np, (x64, thread, thread), (strn, name, name, 64),
                  (i32, status, status));
    return status;
}

#define JOIN(event, call)                                                                              \
    static void event##_cancelled(void *argument)                                                      \
    {                                                                                                  \
        const pthread_t *thread = argument;                                                            \
        TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, thread, *thread), (i32, status, ECANCELED)); \
    }                                                                                                  \
    static int event##_recorded(pthread_t thread, void **result, clockid_t clock,                      \
                                const struct timespec *until)                                          \
    {                                                                                                  \
        int status;                                                                                    \
        (void)clock, (void)until;                                                                      \
        TOMPION_EVENT(lttng_ust_pthread, event##_begin, (x64, thread, thread));                        \
        WAIT(event, event##_cancelled, &thread, call,                                                  \
             TOMPION_EVENT(lttng_ust_pthread, event##_end, (x64, thread, thread),                      \
                           (i32, status, status)););                                                   \
    }

JOIN(pthread_join, NEXT(pthread_join)(thread, result))
JOIN(pthread_timedjoin_np, NEXT(pthread_timedjoin_np)(thread, result, until))
JOIN(pthread_clockjoin_np, NEXT(pthread_clockjoin_np)(thread, result, clock, until))

EXPORT int pthread_join(pthread_t thread, void **result)
{
    return pthread_join_recorded(thread, result, 0, NULL);
}

EXPORT int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until)
{
    return pthread_timedjoin_np_recorded(thread, result, 0, until);
}

EXPORT int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until)
{
    return pthread_clockjoin_np_recorded(thread, result, clock, until);
}

EXPORT int pthread_tryjoin_np(pthread_t thread, void **result)
{
    AFTER(pthread_tryjoin_np, thread, NEXT(pthread_tryjoin_np)(thread, result));
}
