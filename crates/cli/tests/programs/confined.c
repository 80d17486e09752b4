/* `confined HOW`: a program that gives things up while it runs (descriptors, namespaces, roots,
 * users) or forbids itself system calls. What it tells must be in the trace all the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "emit_log.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define MUST(call)                                                                                              \
    do {                                                                                                        \
        if ((call) < 0) {                                                                                       \
            perror(#call);                                                                                      \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        ;
    return status != 0;
}

static int with_child(const char *parent, const char *role)
{
    emit(parent);
    pid_t child = fork();
    if (child == 0) {
        emit(role);
        _exit(0);
    }
    return wait_for(child);
}

/* ---- Descriptors ---------------------------------------------------------------------------- */

static int closing(const char *how)
{
    emit("before");
    if (strcmp(how, "closefrom") == 0)
        closefrom(2);
    else if (strcmp(how, "close_range") == 0)
        MUST(close_range(2, ~0U, 0));
    else
        for (int number = 2; number < 65536; number++)
            close(number);
    close(0);
    return with_child("after", "child");
}

/* The numbers that a program gets are its own: the library opens and closes none beside it. */
static int numbers(int rounds)
{
    int first = open("/dev/null", O_RDONLY), wrong = 0;
    MUST(first);
    close(first);
    emit("before");
    for (int round = 0; round < rounds; round++) {
        int one = open("/dev/null", O_RDONLY), two = dup(one);
        wrong += one != first || two != first + 1;
        wrong += close(two) != 0;
        wrong += close(one) != 0;
    }
    emit("after");
    return wrong != 0;
}

/* ---- Namespaces and roots ------------------------------------------------------------------- */

/* Says what the new user namespace calls this user, so that the rest is allowed. */
static void be_root_inside(void)
{
    int map = open("/proc/self/uid_map", O_WRONLY);
    MUST(map);
    MUST(dprintf(map, "0 0 1\n"));
    close(map);
}

static int unsharing(const char *what)
{
    static const struct {
        const char *name;
        int flags;
    } kinds[] = {
        {"user", CLONE_NEWUSER},
        {"mount", CLONE_NEWNS},
        {"net", CLONE_NEWNET},
        {"pid", CLONE_NEWPID},
        {"time", CLONE_NEWTIME},
        {"all", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWCGROUP},
    };
    int flags = 0;
    for (unsigned index = 0; index < sizeof kinds / sizeof *kinds; index++)
        if (strcmp(kinds[index].name, what) == 0)
            flags = kinds[index].flags;
    emit("before");
    MUST(unshare(flags));
    if (flags & CLONE_NEWUSER)
        be_root_inside();
    emit("after");
    pid_t child = fork();
    if (child == 0) {
        /* In a network of its own it can't reach the session, but say that. */
        emit("child");
        _exit(0);
    }
    return wait_for(child);
}

/* Enters the namespaces of a child that has made new ones. */
static int entering(void)
{
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {{"pid", CLONE_NEWPID}, {"user", CLONE_NEWUSER}, {"time_for_children", CLONE_NEWTIME},
                 {"mnt", CLONE_NEWNS}, {"net", CLONE_NEWNET},   {"uts", CLONE_NEWUTS}};
    int ready[2], end[2];
    char byte, path[64];

    emit("before");
    MUST(pipe(ready));
    MUST(pipe(end));
    pid_t child = fork();
    if (child == 0) {
        close(end[1]);
        MUST(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWTIME));
        be_root_inside();
        emit("child");
        if (write(ready[1], "r", 1) != 1 || read(end[0], &byte, 1) != 0)
            _exit(1);
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    int spaces[6];
    for (int index = 0; index < 6; index++) {
        snprintf(path, sizeof path, "/proc/%d/ns/%s", child, kinds[index].name);
        MUST(spaces[index] = open(path, O_RDONLY));
    }
    for (int index = 0; index < 6; index++) {
        /* Some without saying what it is. */
        MUST(setns(spaces[index], index % 3 ? 0 : kinds[index].kind));
        emit(kinds[index].name);
    }
    close(end[1]);
    int failed = wait_for(child);
    emit("after");
    return failed;
}

static void *wait_in_thread(void *barrier)
{
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* A program with threads of its own is refused, as it would be without the library. */
static int refused(void)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, wait_in_thread, &barrier);
    pthread_barrier_wait(&barrier);
    emit("before");
    errno = 0;
    int result = unshare(CLONE_NEWUSER), error = errno;
    emit("after");
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    return result != -1 || error != EINVAL;
}

static int changing_root(const char *place)
{
    emit("before");
    MUST(chroot(place));
    MUST(chdir("/"));
    return with_child("after", "child");
}

/* ---- Users ---------------------------------------------------------------------------------- */

static int dropping(char *self)
{
    emit("root");
    MUST(setgid(65534));
    MUST(setuid(65534));
    if (with_child("nobody", "nobody's child"))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "leaf", NULL);
        _exit(127);
    }
    if (wait_for(child))
        return 1;
    execl(self, self, "leaf", NULL);
    return 127;
}

static int asked_to_tell(void)
{
    if (write(1, "ready\n", 6) != 6)
        return 1;
    emit_until_input();
    emit("after");
    return 0;
}

static int run(const char *how, const char *what, char *self)
{
    if (strcmp(how, "asked") == 0)
        return asked_to_tell();
    if (strcmp(how, "unheard") == 0) {
        emit_unlogged("unheard");
        return 0;
    }
    if (strcmp(how, "closing") == 0)
        return closing(what);
    if (strcmp(how, "numbers") == 0)
        return numbers(atoi(what));
    if (strcmp(how, "unsharing") == 0)
        return unsharing(what);
    if (strcmp(how, "entering") == 0)
        return entering();
    if (strcmp(how, "refused") == 0)
        return refused();
    if (strcmp(how, "chroot") == 0)
        return changing_root(what);
    if (strcmp(how, "dropping") == 0)
        return dropping(self);
    emit("leaf");
    return 0;
}

int main(int argc, char **argv)
{
    return run(argc > 1 ? argv[1] : "leaf", argc > 2 ? argv[2] : "", argv[0]);
}
