/*
 * `emitter PROGRESS PAUSE STORM COUNT [alone]`: two threads append numbered records that carry
 * their own proof, PAUSE empty rounds apart; with STORM a timer interrupts each of them every STORM
 * microseconds, and the handler appends as well. What was appended is told in the file PROGRESS,
 * number by number, after the append has returned. With COUNT each thread ends after so many
 * records, else never. It waits for a session, unless it is to begin `alone`.
 *
 * PROGRESS: lines of 64 bytes. Line 0: the process id, once there is an event; then 1 when all is
 * done. Line 1 + n: the last number of source n; sources 0 and 1 are the threads, 2 and 3 their
 * handlers.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

#define LONGEST 700

static volatile uint64_t *progress;
static unsigned long pause_rounds, storm, count;
static char letters[26][LONGEST + 1];
static __thread uint64_t handled;
static __thread int self;

/* Every 97th record is too long for an image on the stack. No text is empty: babeltrace2 2.0.4
 * shows the text before it instead. */
static const char *proof(uint64_t number)
{
    unsigned length = number % 97 == 0 ? LONGEST - number % 50 : 1 + number % 48;
    return letters[number % 26] + LONGEST - length;
}

static void append(unsigned source, uint64_t number)
{
    TOMPION_EVENT(emitter, step, (u32, source, source), (u64, number, number),
                  (x64, sum, (number + source) * 0x9e3779b97f4a7c15), (str, text, proof(number)));
    progress[8 * (1 + source)] = number;
}

static void on_timer(int signal)
{
    (void)signal;
    append(2 + (unsigned)self, ++handled);
}

/* On a busy machine the session may not have answered when the program begins; what is appended
 * until then isn't recorded, and nobody's loss. */
static void wait_for_session(void)
{
    for (int tries = 0; !TOMPION_EVENT_ENABLED(emitter, step); tries++) {
        if (tries == 20000) {
            fprintf(stderr, "emitter %d: no session\n", getpid());
            exit(3);
        }
        usleep(1000);
    }
}

static timer_t begin_storm(void)
{
    struct itimerspec every = {{0, (long)storm * 1000}, {0, (long)storm * 1000}};
    struct sigevent event;
    timer_t timer;

    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &every, NULL);
    return timer;
}

static void *run(void *argument)
{
    timer_t timer = 0;

    self = (int)(intptr_t)argument;
    if (storm)
        timer = begin_storm();
    for (uint64_t number = 1; count == 0 || number <= count; number++) {
        append((unsigned)self, number);
        if (number == 1)
            progress[0] = (uint64_t)getpid();
        for (volatile unsigned long i = 0; i < pause_rounds; i++)
            ;
    }
    if (storm)
        timer_delete(timer);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    pthread_t threads[2];
    int file;

    if (argc < 5)
        return 2;
    file = open(argv[1], O_RDWR);
    progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (progress == MAP_FAILED)
        return 2;
    pause_rounds = strtoul(argv[2], NULL, 10);
    storm = strtoul(argv[3], NULL, 10);
    count = strtoul(argv[4], NULL, 10);
    for (int i = 0; i < 26; i++)
        memset(letters[i], 'a' + i, LONGEST);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigaction(SIGRTMIN, &action, NULL);
    /* In case no process is left to kill it. */
    alarm(300);
    if (argc < 6)
        wait_for_session();
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    puts("all appended");
    fflush(stdout);
    progress[1] = 1;
    return 0;
}
