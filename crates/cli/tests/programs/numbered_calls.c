/*
 * Calls getpgid() with numbers that no process has, counting up from 1, in two threads: each call
 * has an argument of its own. Runs until it is killed.
 *
 *   numbered_calls PROGRESS BURST
 *       writes its process id into the first word of the file PROGRESS, and the last number whose
 *       call has returned into word 8 for the first thread, 16 for the second; each millisecond has
 *       so many calls
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Above all process ids, which end at 1 << 22. */
#define NUMBERS_OF_THREAD (1 << 24)
#define FIRST (1 << 23)

static volatile uint64_t *words;
static int burst;

static void *calls(void *argument)
{
    uintptr_t source = (uintptr_t)argument;
    for (uint64_t number = 1;; number++) {
        syscall(SYS_getpgid, (int)(FIRST + source * NUMBERS_OF_THREAD + number));
        words[8 * (1 + source)] = number;
        if (number % burst == 0)
            usleep(1000);
    }
    return 0;
}

int main(int count, char **arguments)
{
    int file = count == 3 ? open(arguments[1], O_RDWR) : -1;
    if (file < 0) {
        fprintf(stderr, "numbered_calls PROGRESS BURST\n");
        return 1;
    }
    words = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    burst = atoi(arguments[2]);
    words[0] = (uint64_t)getpid();
    pthread_t second;
    pthread_create(&second, 0, calls, (void *)1);
    calls(0);
}
