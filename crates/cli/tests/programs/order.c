/*
 * order ROUNDS: an event, a system call, an event; over and over, while the thread is moved from CPU to CPU and all
 * CPUs have other things to do. The system call is one that nobody else makes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <tompion/tompion.h>

static volatile int done;
static pid_t worker;

static void *move(void *unused)
{
    (void)unused;
    for (int cpu = 0; !done; cpu = (cpu + 1) % get_nprocs()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(worker, sizeof set, &set);
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

int main(int count, char **words)
{
    unsigned long rounds = count > 1 ? strtoul(words[1], NULL, 0) : 1000;
    pthread_t threads[3];
    worker = gettid();
    pthread_create(&threads[0], NULL, move, NULL);
    pthread_create(&threads[1], NULL, spin, NULL);
    pthread_create(&threads[2], NULL, spin, NULL);
    for (unsigned long round = 0; round < rounds; round++) {
        TOMPION_EVENT(order, before, (u64, round, round));
        syscall(SYS_getpgid, 0);
        TOMPION_EVENT(order, after, (u64, round, round));
    }
    done = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
