/*
 * order ROUNDS [LEGS]: an event, a system call, an event; over and over, while the thread is moved
 * from CPU to CPU and all CPUs have other things to do. No other process makes this
 * system call.
 *
 * With LEGS the clock's rate is changed at the beginning of each, by 100 or 500 millionths up or
 * down. Exit code 77: that isn't permitted. Whatever becomes of the program, a child puts back the
 * rate that was.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* Number of times that the thread moves itself. */
#define ROUNDS_ON_A_CPU 1000
/* A leg lasts so many pauses of 4 ms at least: the clock is to be sampled between two changes. */
#define PAUSES 25

static volatile int done;
static pid_t worker;
static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % get_nprocs(), &set);
    sched_setaffinity(worker, sizeof set, &set);
}

static void *move(void *unused)
{
    (void)unused;
    for (int cpu = 0; !done; cpu++) {
        pthread_mutex_lock(&moving);
        go_to(cpu);
        pthread_mutex_unlock(&moving);
        usleep(300);
    }
    return NULL;
}

static void *spin(void *unused)
{
    (void)unused;
    while (!done)
        ;
    return NULL;
}

static int set_rate(long millionths_of_65536)
{
    struct timex change = {.modes = ADJ_FREQUENCY, .freq = millionths_of_65536};
    return adjtimex(&change) < 0;
}

/* A process that puts the rate back when this one has ended, however it ended. Returns what
 * keeps it waiting. */
static int keep_rate(pid_t *keeper)
{
    struct timex now = {.modes = 0};
    int ends[2];
    if (adjtimex(&now) < 0 || set_rate(now.freq) || pipe(ends))
        _exit(77);
    *keeper = fork();
    if (*keeper == 0) {
        char byte;
        setsid();
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0)
            ;
        _exit(set_rate(now.freq));
    }
    close(ends[0]);
    return ends[1];
}

static void record(unsigned long round)
{
    TOMPION_EVENT(order, before, (u64, round, round));
    syscall(SYS_getpgid, 0);
    TOMPION_EVENT(order, after, (u64, round, round));
}

static void one_round(unsigned long round)
{
    if (round % ROUNDS_ON_A_CPU) {
        record(round);
        return;
    }
    /* On that CPU, whatever the other thread wants. */
    pthread_mutex_lock(&moving);
    go_to((int)(round / ROUNDS_ON_A_CPU));
    record(round);
    pthread_mutex_unlock(&moving);
}

static void rounds_in_legs(unsigned long rounds, unsigned long legs)
{
    static const long rates[] = {100, -100, 500, -500, 0};
    unsigned long round = 0;
    for (unsigned long part = 0; part < legs * PAUSES; part++) {
        if (part % PAUSES == 0)
            set_rate(rates[part / PAUSES % 5] * 65536);
        for (; round < rounds * (part + 1) / (legs * PAUSES); round++)
            one_round(round);
        usleep(4000);
    }
}

int main(int count, char **words)
{
    unsigned long rounds = count > 1 ? strtoul(words[1], NULL, 0) : 1000;
    unsigned long legs = count > 2 ? strtoul(words[2], NULL, 0) : 0;
    pthread_t threads[3];
    pid_t keeper = 0;
    int status = 0, kept = legs ? keep_rate(&keeper) : -1;
    worker = gettid();
    pthread_create(&threads[0], NULL, move, NULL);
    pthread_create(&threads[1], NULL, spin, NULL);
    pthread_create(&threads[2], NULL, spin, NULL);
    if (legs)
        rounds_in_legs(rounds, legs);
    else
        for (unsigned long round = 0; round < rounds; round++)
            one_round(round);
    done = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    if (legs) {
        /* What was recorded last is converted by samples that follow. */
        usleep(PAUSES * 4000);
        close(kept);
        waitpid(keeper, &status, 0);
    }
    return status ? 1 : 0;
}
