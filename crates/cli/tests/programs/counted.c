/* `counted THREADS ROUNDS [HOW]`: threads send events with many keys, while signals, whose handler
 * sends one as well, and changes of the CPU interrupt them. HOW is `fork` (a child does the same),
 * `kill` (it ends by SIGKILL) or `wait` (it runs until its input ends). The threads' stacks are so
 * large that the C library frees each thread's memory when it ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

static long rounds;
static const char *const names[] = {"/", "/index.html", "/orders", "a path of more than forty-eight bytes, cut",
                                    "a path of more than forty-eight bytes, of which the end is cut off"};

static void on_signal(int number)
{
    TOMPION_EVENT(counted, signal, (i32, number, number));
}

static void request(uint64_t round)
{
    TOMPION_EVENT(counted, request, (i32, status, (int)(round % 7) * 100 - 100), (str, path, names[round % 5]),
                  (u64, size, round * round % 100000));
}

static void *run(void *number)
{
    unsigned cpu = (unsigned)(uintptr_t)number;
    for (long round = 0; round < rounds; ++round) {
        request((uint64_t)round);
        TOMPION_EVENT(counted, many, (u32, key, (uint32_t)round % 5000), (i64, change, round % 3 - 1));
        if (round % 1024 == 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(cpu++ % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
            sched_setaffinity(0, sizeof set, &set);
        }
    }
    return NULL;
}

static void run_all(long threads)
{
    pthread_t ids[64];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    for (long thread = 0; thread < threads; ++thread)
        pthread_create(&ids[thread], &attributes, run, (void *)thread);
    for (long thread = 0; thread < threads; ++thread)
        pthread_join(ids[thread], NULL);
}

int main(int argc, char **argv)
{
    const long threads = argc > 1 ? atol(argv[1]) : 1;
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    const char *how = argc > 3 ? argv[3] : "";
    const struct itimerval often = {{0, 200}, {0, 200}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    if (strcmp(how, "fork") == 0 && fork() == 0) {
        setitimer(ITIMER_REAL, &often, NULL);
        run_all(threads);
        return 0;
    }
    run_all(threads);
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "wait") == 0) {
        char byte;
        while (read(0, &byte, 1) > 0) {
        }
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
