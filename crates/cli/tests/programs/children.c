/* `children HOW`: a process has a child in every way that there is. Each tells its role by an
 * event. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

extern char **environ;

static void tell(const char *role)
{
    TOMPION_EVENT(children, role, (str, role, role));
}

static int by_fork(void)
{
    pid_t child = fork();
    tell(child == 0 ? "child" : "parent");
    if (child == 0)
        exit(3);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child exited with %d\n", WEXITSTATUS(status));
    return 0;
}

static int by_fork_and_exec(char *self)
{
    pid_t child = fork();
    if (child == 0) {
        tell("child");
        execl(self, self, "leaf", NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    tell("parent");
    return 0;
}

/* The daemon goes on when its parent, the command, is long gone. */
static int as_daemon(void)
{
    tell("parent");
    if (fork() != 0)
        return 0;
    setsid();
    if (fork() != 0)
        _exit(0);
    while (getppid() != 1)
        usleep(1000);
    usleep(200 * 1000);
    tell("daemon");
    exit(0);
}

static int by_vfork(char *self)
{
    tell("parent");
    pid_t child = vfork();
    if (child == 0) {
        execl(self, self, "leaf", NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    tell("parent again");
    return 0;
}

/* What POSIX forbids and people do: the child runs on its parent's memory. */
static int in_vfork_child(void)
{
    tell("parent");
    pid_t child = vfork();
    if (child == 0) {
        tell("vfork child");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    tell("parent again");
    return 0;
}

static int by_spawn(char *self, int waiting)
{
    char leaf[] = "leaf", *arguments[] = {self, leaf, NULL};
    pid_t child;
    tell("parent");
    if (posix_spawn(&child, self, NULL, NULL, arguments, environ) != 0)
        return 1;
    if (waiting)
        waitpid(child, NULL, 0);
    return 0;
}

static int by_shell(char *self, int piped)
{
    char command[4096], line[64];
    tell("parent");
    snprintf(command, sizeof command, "'%s' leaf", self);
    if (!piped)
        return system(command);
    FILE *pipe = popen(command, "r");
    while (fgets(line, sizeof line, pipe))
        printf("read: %s", line);
    return pclose(pipe);
}

/* As daemons do: closes every descriptor that it did not open, then uses the numbers itself. */
static int closing_all(void)
{
    tell("before");
    for (int number = 3; number < 1024; number++)
        close(number);
    for (int number = 3; number < 1024; number++)
        dup2(1, number);
    tell("after");
    pid_t child = fork();
    if (child == 0) {
        tell("child");
        exit(dup(1) < 0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    for (int number = 3; number < 1024; number++)
        if (dup2(number, number) != number)
            printf("descriptor %d was closed\n", number);
    return status;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "leaf";

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s\n", how);
    if (strcmp(how, "fork") == 0)
        return by_fork();
    if (strcmp(how, "fork+exec") == 0)
        return by_fork_and_exec(argv[0]);
    if (strcmp(how, "daemon") == 0)
        return as_daemon();
    if (strcmp(how, "closing all") == 0)
        return closing_all();
    if (strcmp(how, "vfork+exec") == 0)
        return by_vfork(argv[0]);
    if (strcmp(how, "vfork") == 0)
        return in_vfork_child();
    if (strncmp(how, "posix_spawn", 11) == 0)
        return by_spawn(argv[0], how[11] == 0);
    if (strcmp(how, "system") == 0 || strcmp(how, "popen") == 0)
        return by_shell(argv[0], how[0] == 'p');
    tell("leaf");
    return 0;
}
