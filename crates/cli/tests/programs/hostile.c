/*
 * `hostile SEED ROUNDS`: writes random bytes over everything that it shares with its session, and traces
 * all the while. A child that was forked before it began to do so traces, too, and means no harm.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

#define INNOCENT_EVENTS 20000

struct range {
    char *begin, *end;
};

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int shared_memory(struct range *ranges, int most)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], flags[8];
    unsigned long begin, end;
    int count = 0;

    while (fgets(line, sizeof line, maps) && count < most) {
        int known = strstr(line, "memfd:tompion-rings") || strstr(line, "memfd:tompion-control");
        if (known && sscanf(line, "%lx-%lx %7s", &begin, &end, flags) == 3 && flags[1] == 'w')
            ranges[count++] = (struct range){(char *)begin, (char *)end};
    }
    fclose(maps);
    return count;
}

/* Mostly a few bytes in the headers, where they hurt most. */
static void scribble(const struct range *range)
{
    size_t size = (size_t)(range->end - range->begin);
    size_t page = next() % (size / 4096) * 4096;
    size_t place = next() % 4 == 0 ? next() % size : next() % 2 ? page + next() % 320 : next() % 4096;
    size_t length = next() % 8 == 0 ? next() % 4096 : 1 + next() % 16;

    for (size_t i = 0; i < length && place + i < size; i++)
        range->begin[place + i] = (char)next();
}

static void innocent(int done)
{
    char byte;
    for (uint64_t number = 1; number <= INNOCENT_EVENTS; number++) {
        TOMPION_EVENT(innocent, step, (u64, number, number));
        if (number % 100 == 0)
            usleep(100);
    }
    if (read(done, &byte, 1) == 1)
        TOMPION_EVENT(innocent, last, (u64, number, INNOCENT_EVENTS + 1));
    exit(0);
}

int main(int argc, char **argv)
{
    struct range ranges[16];
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    int pipes[2], count;
    pid_t child;

    state = argc > 1 ? strtoul(argv[1], NULL, 10) | 1 : 1;
    TOMPION_EVENT(hostile, still_sound);
    if (pipe(pipes) != 0 || (child = fork()) < 0)
        return 2;
    if (child == 0)
        innocent(pipes[0]);
    count = shared_memory(ranges, 16);
    for (unsigned long round = 0; count > 0 && round < rounds; round++) {
        scribble(&ranges[next() % (unsigned)count]);
        TOMPION_EVENT(hostile, step, (u64, round, round), (str, text, "some text"));
        if (round % 50 == 0)
            usleep(50);
    }
    if (write(pipes[1], "", 1) != 1)
        return 2;
    waitpid(child, NULL, 0);
    printf("%d places\n", count);
    return 0;
}
