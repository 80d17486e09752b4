/* `filtered alone | all [asked]`: forbids itself (or all its threads, the library's too) every
 * system call but those that it makes itself, and those that docs/design/processes.md lists. Any
 * other one kills it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "emit_log.h"

/* What this program does. */
static const int own[] = {SYS_write, SYS_read, SYS_getpid, SYS_gettid, SYS_tgkill, SYS_rt_sigreturn,
                          SYS_rt_sigprocmask, SYS_exit_group, SYS_fcntl, SYS_clock_nanosleep};
/* What the library's thread does as long as a session records, and when it ends. */
static const int recorded[] = {SYS_poll, SYS_newfstatat, SYS_recvfrom, SYS_madvise, SYS_futex,
                               SYS_membarrier, SYS_mmap, SYS_munmap, SYS_close, SYS_fcntl, SYS_restart_syscall};
/* What it does more when it is asked to take part. */
static const int asked[] = {SYS_accept4, SYS_getsockopt, SYS_setsockopt, SYS_socket, SYS_connect, SYS_getpid,
                            SYS_prctl, SYS_openat, SYS_statx, SYS_read, SYS_readlink, SYS_sendmsg,
                            SYS_recvmsg, SYS_rt_sigprocmask, SYS_clone3, SYS_clone, SYS_mprotect, SYS_rseq,
                            SYS_set_robust_list, SYS_clock_nanosleep, SYS_gettid, SYS_exit, SYS_geteuid};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static struct sock_filter code[200];
static unsigned short length;

static void allow(const int *calls, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[index], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
}

static void forbid_the_rest(int of_all_threads, int may_be_asked)
{
    code[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    allow(own, COUNT(own));
    if (of_all_threads)
        allow(recorded, COUNT(recorded));
    if (may_be_asked)
        allow(asked, COUNT(asked));
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {length, code};
    int flags = of_all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program))
        _exit(77);
}

static void on_signal(int signal)
{
    (void)signal;
    emit("handler");
}

static volatile int stage;

/* Its first event comes under the filter. */
static void *run(void *unused)
{
    while (stage == 0)
        ;
    emit("thread");
    stage = 2;
    while (stage == 2)
        ;
    return unused;
}

static void say(const char *word)
{
    if (write(1, word, strlen(word)) < 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    int all = argc > 1 && strcmp(argv[1], "all") == 0, may_be_asked = argc > 2;
    pid_t self = getpid();
    pthread_t thread;

    signal(SIGUSR1, on_signal);
    pthread_create(&thread, NULL, run, NULL);
    emit("before");
    say("ready\n");
    emit_until_input();
    forbid_the_rest(all, may_be_asked);
    say("filtered\n");
    emit_until_input();
    stage = 1;
    while (stage != 2)
        ;
    for (int number = 0; number < 3000; number++)
        emit("filtered");
    syscall(SYS_tgkill, self, self, SIGUSR1);
    emit_until_input();
    emit("after");
    syscall(SYS_exit_group, 0);
}
