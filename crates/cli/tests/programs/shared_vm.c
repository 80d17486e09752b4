/* `shared_vm HOW [ROUNDS]`: children that run on their parent's memory, which POSIX forbids to
 * do anything and which do. Their events must be lost and counted, and do no harm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "emit_log.h"

extern char **environ;

/* Number of events that are not in the log. */
static atomic_ulong unrecorded;

static void emit_unrecorded(const char *role)
{
    emit_unlogged(role);
    unrecorded++;
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, __WALL) < 0)
        ;
    return status != 0;
}

static void on_signal(int signal)
{
    (void)signal;
    emit_unrecorded("handler of a child");
}

/* A child by vfork that records, takes a signal, calls other functions, and leaves. */
static int by_vfork(void)
{
    signal(SIGUSR1, on_signal);
    emit("parent");
    pid_t child = vfork();
    if (child == 0) {
        emit_unrecorded("child");
        raise(SIGUSR1);
        emit_unrecorded("child again");
        _exit(0);
    }
    int failed = wait_for(child);
    emit("parent again");
    return failed;
}

static atomic_int stage;

static void reach(int wanted)
{
    stage = wanted;
}

static void await(int wanted)
{
    while (stage != wanted)
        sched_yield();
}

static int brief_child(void *unused)
{
    (void)unused;
    emit_unrecorded("child");
    return 0;
}

/* Runs at the same time as its parent, each waiting for the other to record. */
static int slow_child(void *unused)
{
    (void)unused;
    emit_unrecorded("child");
    reach(1);
    await(2);
    emit_unrecorded("child again");
    reach(3);
    return 0;
}

#define STACK_SIZE (256 * 1024)
static char stack[STACK_SIZE] __attribute__((aligned(16)));

static int by_clone_and_waiting(void)
{
    emit("parent");
    pid_t child = clone(brief_child, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    emit("parent again");
    return child < 0 || wait_for(child);
}

static int by_clone_beside(int more_flags, void *storage)
{
    static int thread_id;
    emit("parent");
    int flags = CLONE_VM | (more_flags & CLONE_THREAD ? 0 : SIGCHLD) | more_flags;
    thread_id = -1;
    int child = clone(slow_child, stack + STACK_SIZE, flags | CLONE_CHILD_CLEARTID, NULL, NULL, storage,
                      &thread_id);
    if (child < 0)
        return 1;
    await(1);
    emit("parent beside");
    reach(2);
    await(3);
    emit("parent again");
    if (!(more_flags & CLONE_THREAD))
        return wait_for(child);
    while (*(volatile int *)&thread_id != 0)
        sched_yield();
    emit("parent alone");
    return 0;
}

/* Thread-local storage as the C library makes it for a thread, but never told of. */
static void *new_storage(void)
{
    void *(*allocate)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
    uintptr_t *block = allocate ? allocate(NULL) : NULL;
    if (!block)
        exit(77);
#if defined(__x86_64__)
    uintptr_t *own;
    __asm__("mov %%fs:0, %0" : "=r"(own));
    block[0] = block[2] = (uintptr_t)block; /* where it is */
    block[5] = own[5];                      /* the stack protector's secret */
    block[6] = own[6];
#endif
    return block;
}

/* What libc does in such children is no business of the program's. */
static int by_spawn(char *self, int rounds)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    char leaf[] = "leaf", *arguments[] = {self, leaf, NULL};
    int failed = 0;

    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 5, 0);
    posix_spawn_file_actions_addclose(&actions, 5);
    for (int round = 0; round < rounds; round++) {
        pid_t child;
        emit("parent");
        if (posix_spawn(&child, self, &actions, &attributes, arguments, environ) != 0)
            return 1;
        emit("parent beside");
        failed |= wait_for(child);
    }
    char command[4096];
    snprintf(command, sizeof command, "'%s' leaf", self);
    failed |= system(command);
    FILE *pipe = popen(command, "r");
    while (fgets(command, sizeof command, pipe))
        failed |= write(1, command, strlen(command)) < 0;
    return failed | pclose(pipe);
}

/* ---- All at once ---------------------------------------------------------------------------- */

enum { THREADS = 3 };
static atomic_ulong counts[THREADS + 2]; /* of the threads, of main, of signal handlers */
static atomic_int working = 1;

static void count(int source)
{
    unsigned long number = ++counts[source];
    TOMPION_EVENT(shared_vm, count, (u32, source, source), (u64, number, number));
}

static void count_signal(int signal)
{
    (void)signal;
    /* Only main takes signals, and it is the parent: a child gets none of its timers. */
    count(THREADS + 1);
}

static void *count_on(void *source)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (working) {
        for (int index = 0; index < 10; index++)
            count((int)(intptr_t)source);
        usleep(1000);
    }
    return NULL;
}

static void move_to_another_cpu(pid_t thread, int round)
{
    cpu_set_t one;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&one);
    CPU_SET(round % (cpus > 0 ? cpus : 1), &one);
    sched_setaffinity(thread, sizeof one, &one);
}

static pid_t child_by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        for (int index = 0; index < 5; index++)
            emit_unrecorded("child");
        _exit(0);
    }
    return child;
}

static pid_t child_by_clone(void)
{
    return clone(brief_child, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}

/* Guests of two kinds come and go, signals come, threads trace, and main is moved from CPU to
 * CPU. */
static int crowd(int milliseconds)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 400}, {0, 400}}, never = {0};
    struct timespec now, end;
    pthread_t threads[THREADS];
    unsigned long children = 0;
    int failed = 0;

    for (intptr_t index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, count_on, (void *)index);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += milliseconds / 1000;
    end.tv_nsec += milliseconds % 1000 * 1000000L;
    for (int round = 0; !failed; round++) {
        move_to_another_cpu(0, round);
        count(THREADS);
        pid_t child = round % 2 ? child_by_vfork() : child_by_clone();
        children++;
        count(THREADS);
        failed |= child < 0 || wait_for(child);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec))
            break;
        if (round % 8 == 0)
            usleep(200);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    working = 0;
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
    for (int source = 0; source < THREADS + 2; source++)
        printf("source %d counted to %lu\n", source, (unsigned long)counts[source]);
    printf("children %lu\n", children);
    return failed;
}

static int run(const char *how, int rounds, char *self)
{
    if (strcmp(how, "vfork") == 0)
        return by_vfork();
    if (strcmp(how, "clone and wait") == 0)
        return by_clone_and_waiting();
    if (strcmp(how, "clone beside") == 0)
        return by_clone_beside(0, NULL);
    if (strcmp(how, "clone with storage") == 0)
        return by_clone_beside(CLONE_SETTLS, new_storage());
    if (strcmp(how, "thread by hand") == 0)
        return by_clone_beside(CLONE_SETTLS | CLONE_SIGHAND | CLONE_THREAD, new_storage());
    if (strcmp(how, "spawn") == 0)
        return by_spawn(self, rounds);
    if (strcmp(how, "crowd") == 0)
        return crowd(rounds);
    emit("leaf");
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "leaf";
    int failed = run(how, argc > 2 ? atoi(argv[2]) : 1, argv[0]);
    fflush(stdout);
    if (strcmp(how, "leaf") != 0)
        printf("unrecorded %lu\n", (unsigned long)unrecorded);
    return failed;
}
