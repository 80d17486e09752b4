/* `small_stacks SIZE`: a signal handler records on an alternate stack of this size, and says how
 * much of it was used beyond what a handler uses that does nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <tompion/tompion.h>

enum { MOST = 256 * 1024, PAINT = 0xA5 };
static unsigned char *lowest;
static size_t size;
static volatile int what;

static void handle(int signal)
{
    (void)signal;
    switch (what) {
    case 1:
        TOMPION_EVENT(stacks, fixed, (i32, one, 1), (u64, two, 2));
        break;
    case 2:
        TOMPION_EVENT(stacks, texts, (str, one, "some text"), (str, two, "and more of it"));
        break;
    case 3:
        TOMPION_EVENT(stacks, fixed, (i32, one, 3), (u64, two, 4));
        TOMPION_EVENT(stacks, texts, (str, one, ""), (str, two, ""));
        break;
    }
}

/* Bytes of the stack that a handler has touched. */
static size_t used_by(int action)
{
    size_t untouched = 0;
    memset(lowest, PAINT, size);
    what = action;
    raise(SIGUSR1);
    while (untouched < size && lowest[untouched] == PAINT)
        untouched++;
    return size - untouched;
}

static void *run(void *unused)
{
    stack_t stack = {.ss_sp = lowest, .ss_size = size};
    if (sigaltstack(&stack, NULL) != 0)
        exit(1);
    size_t nothing = used_by(0);
    printf("frame %zu\n", nothing);
    for (int action = 1; action <= 3; action++)
        printf("need %zu\n", used_by(action) - nothing);
    return unused;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    pthread_t thread;

    size = argc > 1 ? strtoul(argv[1], NULL, 10) : MOST;
    /* Nothing is mapped below it: a thread that needs more dies. */
    unsigned char *all = mmap(NULL, MOST + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t rounded = (size + 4095) / 4096 * 4096;
    if (all == MAP_FAILED || mprotect(all + 65536, rounded, PROT_READ | PROT_WRITE) != 0)
        return 1;
    lowest = all + 65536;
    sigaction(SIGUSR1, &action, NULL);
    run(NULL);
    /* In a thread whose first event this is. */
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    return 0;
}
