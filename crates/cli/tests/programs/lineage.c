/* `lineage HOW [NUMBER]`: children that begin with a copy of their parent's memory, in every
 * way. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "emit_log.h"

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        ;
    return status != 0;
}

/* Each has one child. */
static int chain(int depth)
{
    emit("begins");
    if (depth == 0)
        return 0;
    pid_t child = fork();
    if (child == 0)
        exit(chain(depth - 1));
    int failed = wait_for(child);
    emit("ends");
    return failed;
}

/* Children come quickly, up to eight at a time: a child waits for its session for a while only. */
static int brood(int count)
{
    int failed = 0, living = 0;
    emit("parent");
    for (int index = 0; index < count; index++) {
        if (fork() == 0) {
            emit("child");
            emit("child again");
            exit(0);
        }
        if (++living == 8) {
            failed |= wait_for(-1);
            living--;
        }
    }
    while (living-- > 0)
        failed |= wait_for(-1);
    emit("parent again");
    return failed;
}

static int bare_fork(void)
{
    emit("parent");
    pid_t child = _Fork();
    emit(child == 0 ? "child" : "parent again");
    if (child == 0) {
        pid_t grandchild = fork();
        emit(grandchild == 0 ? "grandchild" : "child again");
        if (grandchild == 0)
            _exit(0);
        _exit(wait_for(grandchild));
    }
    return wait_for(child);
}

static int cloned(void *argument)
{
    emit(argument);
    pid_t grandchild = fork();
    emit(grandchild == 0 ? "grandchild" : "child again");
    if (grandchild == 0)
        _exit(0);
    return wait_for(grandchild);
}

static int copied_by_clone(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    emit("parent");
    pid_t child = clone(cloned, stack + sizeof stack, SIGCHLD, "child");
    emit("parent again");
    return child < 0 || wait_for(child);
}

/* By the bare system call: the library doesn't know of it and must stay out, children included. */
static int strays(const char *how, char *self)
{
    emit("parent");
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    long child = strcmp(how, "raw fork") == 0    ? syscall(SYS_fork)
                 : strcmp(how, "raw clone") == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
                                                 : syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        emit_unlogged("stray");
        pid_t grandchild = fork();
        if (grandchild == 0) {
            emit_unlogged("stray's child");
            execl(self, self, "leaf", NULL);
        }
        emit_unlogged("stray again");
        _exit(wait_for(grandchild));
    }
    emit("parent again");
    return child < 0 || wait_for(child);
}

/* Two forks, a session of its own, no descriptor kept but standard output; its parents are long
 * gone. */
static int daemonize(void)
{
    emit("starter");
    if (fork() != 0)
        return 0;
    setsid();
    emit("leader");
    if (fork() != 0)
        _exit(0);
    for (int number = 2; number < 65536; number++)
        close(number);
    close(0);
    if (chdir("/") != 0)
        return 1;
    while (getppid() != 1)
        usleep(1000);
    usleep(200 * 1000);
    emit("daemon");
    pid_t worker = fork();
    emit(worker == 0 ? "worker" : "daemon again");
    return worker == 0 ? 0 : wait_for(worker);
}

/* A module of one's own with copies of the program's sites, to keep the library busy: each
 * loading takes its lock and its heap. */
struct busy {
    struct tompion_module module;
    struct tompion_site sites[16], *pointers[16];
};
static atomic_int working = 1;

static void load_and_unload(struct busy *busy)
{
    struct tompion_site *const *from = tompion_module_v1.sites_begin;
    int count = 0;
    for (; count < 16 && from + count < tompion_module_v1.sites_end; count++) {
        busy->sites[count] = *from[count];
        busy->pointers[count] = &busy->sites[count];
    }
    busy->module = (struct tompion_module){
        .abi = TOMPION_ABI, .sites_begin = busy->pointers, .sites_end = busy->pointers + count};
    if (tompion_agent_v1(&busy->module, 1) != 0)
        abort();
    tompion_agent_v1(&busy->module, 0);
}

static void *load_until_the_end(void *unused)
{
    struct busy busy;
    while (working)
        load_and_unload(&busy);
    return unused;
}

static atomic_int forks_left;
static int by_bare_fork;

static void fork_in_handler(int signal)
{
    (void)signal;
    /* The next signal may come to the other thread. */
    if (atomic_fetch_sub(&forks_left, 1) <= 0)
        return;
    pid_t child = by_bare_fork ? _Fork() : fork();
    if (child == 0) {
        emit("child of a handler");
        _exit(0);
    }
}

/* Signals fork while this very thread, and another one, are inside the library. */
static int forks_in_handlers(int count)
{
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 700}, {0, 700}}, never = {0};
    pthread_t other;
    struct busy busy;

    emit("parent");
    forks_left = count;
    pthread_create(&other, NULL, load_until_the_end, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (forks_left > 0)
        load_and_unload(&busy);
    setitimer(ITIMER_REAL, &never, NULL);
    working = 0;
    pthread_join(other, NULL);
    int failed = 0;
    for (int index = 0; index < count; index++)
        failed |= wait_for(-1);
    emit("parent again");
    return failed;
}

static void *emit_until_the_end(void *unused)
{
    while (working) {
        emit("thread");
        usleep(500);
    }
    return unused;
}

/* Some threads trace, some keep the library busy, one forks. */
static int forks_among_threads(int count)
{
    pthread_t threads[6];
    int failed = 0;
    for (int index = 0; index < 6; index++)
        pthread_create(&threads[index], NULL, index < 5 ? emit_until_the_end : load_until_the_end, NULL);
    for (int index = 0; index < count; index++) {
        pid_t child = fork();
        emit(child == 0 ? "child" : "parent");
        if (child == 0)
            _exit(0);
        failed |= wait_for(child);
    }
    working = 0;
    for (int index = 0; index < 6; index++)
        pthread_join(threads[index], NULL);
    return failed;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "leaf";
    int number = argc > 2 ? atoi(argv[2]) : 0;

    if (strcmp(how, "chain") == 0)
        return chain(number);
    if (strcmp(how, "brood") == 0)
        return brood(number);
    if (strcmp(how, "_Fork") == 0)
        return bare_fork();
    if (strcmp(how, "clone") == 0)
        return copied_by_clone();
    if (strncmp(how, "raw ", 4) == 0)
        return strays(how, argv[0]);
    if (strcmp(how, "daemon") == 0)
        return daemonize();
    by_bare_fork = strcmp(how, "_Fork in handlers") == 0;
    if (by_bare_fork || strcmp(how, "fork in handlers") == 0)
        return forks_in_handlers(number);
    if (strcmp(how, "threads") == 0)
        return forks_among_threads(number);
    emit("leaf");
    return 0;
}
