/*
 * `hostile SEED CORRUPTIONS [flood]`: damages all that it shares with its session, at random and
 * knowing what stands where, and traces all the while. Children that were forked before it began to
 * do so trace, too, and mean no harm. With `flood` it claims to fill its rings as fast as it can.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* Places in the memory, see crates/layout. */
enum {
    PAGE = 4096,
    CONTROL_SUBBUF_SIZE = 16,
    CONTROL_SUBBUF_COUNT = 24,
    CONTROL_LOST = 256,
    CONTROL_SNAPSHOTS = 384,
    CATALOG = 17 * PAGE,
    CATALOG_SIZE = 2 << 20,
    KEPT = CATALOG + CATALOG_SIZE,
    KEPT_SIZE = 1 << 20,
    RING_WRITE = 0,
    RING_EVENTS = 8,
    RING_LOST = 16,
    RING_CONSUMED = 192,
    RING_DATA = PAGE,
    FIRST_EVENT = 16,
};

struct range {
    char *begin, *end;
};

static struct range control, rings;
static uint64_t state, subbuf_size, ring_size;
static unsigned ring_count, fills;
static atomic_int done;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t odd(void)
{
    static const uint64_t numbers[] = {
        0, 1, 7, 8, 4096, 65535, 1u << 31, 0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, -8ull, -1ull,
    };
    return next() % 2 ? numbers[next() % (sizeof numbers / sizeof *numbers)] : next() >> next() % 64;
}

static void find_shared_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], flags[8];
    unsigned long begin, end;

    while (fgets(line, sizeof line, maps)) {
        /* In sealed memory, or in files of a folder. */
        struct range *range = strstr(line, "memfd:tompion-rings") || strstr(line, "/rings\n")       ? &rings
                              : strstr(line, "memfd:tompion-control") || strstr(line, "/control\n") ? &control
                                                                                                    : NULL;
        if (range && sscanf(line, "%lx-%lx %7s", &begin, &end, flags) == 3 && flags[1] == 'w')
            *range = (struct range){(char *)begin, (char *)end};
    }
    fclose(maps);
    if (!control.begin || !rings.begin)
        exit(3);
    memcpy(&subbuf_size, control.begin + CONTROL_SUBBUF_SIZE, 8);
    ring_size = subbuf_size * *(uint64_t *)(control.begin + CONTROL_SUBBUF_COUNT);
    ring_count = (unsigned)((uint64_t)(rings.end - rings.begin) / (RING_DATA + ring_size));
}

static void set(char *place, uint64_t value)
{
    *(volatile uint64_t *)place = value;
}

static uint64_t get(char *place)
{
    return *(volatile uint64_t *)place;
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

static char *some_ring(void)
{
    return rings.begin + next() % ring_count * (RING_DATA + ring_size);
}

/* A whole ring of records that could be, but for what they say; many of them in a time that is
 * not theirs. */
static void fill(char *ring, int lie)
{
    uint64_t begin = (get(ring + RING_CONSUMED) + subbuf_size - 1) / subbuf_size * subbuf_size;
    uint64_t time = __builtin_ia32_rdtsc();
    char *data = ring + RING_DATA;

    set(ring + RING_WRITE, begin);
    for (uint64_t at = begin; at < begin + ring_size;) {
        char *place = data + at % ring_size;
        if (at % subbuf_size == 0) {
            uint64_t header[5] = {1 | 5 << 16, time, at, lie ? odd() : 0, lie ? odd() : 0};
            memcpy(place, header, sizeof header);
            at += sizeof header;
        }
        place = data + at % ring_size;
        uint64_t words = 3 + next() % 8, left = (subbuf_size - at % subbuf_size) / 8;
        words = words + 3 > left ? left : words;
        uint64_t id = FIRST_EVENT + (lie && next() % 4 == 0 ? next() % 600 : next() % 3);
        uint64_t tid = lie ? next() >> 32 : 7;
        set(place, id | words << 16 | tid << 32);
        set(place + 8, lie ? (next() % 2 ? time - next() % (1u << 30) : odd()) : time++);
        for (uint64_t word = 2; word < words; word++)
            set(place + word * 8, lie ? next() % 64 : 0);
        at += words * 8;
    }
    set(ring + RING_WRITE, begin + ring_size);
}

static void damage_ring(void)
{
    char *ring = some_ring(), *data = ring + RING_DATA;
    uint64_t consumed = get(ring + RING_CONSUMED), write = get(ring + RING_WRITE);

    switch (next() % 12) {
    case 0: /* From some of these the reader never comes back. */
        set(ring + RING_WRITE, next() % 256 ? consumed + next() % (ring_size / 8) * 8 : odd());
        break;
    case 1:
        set(ring + RING_WRITE, consumed + (next() % 2 ? ring_size : 8));
        break;
    case 2:
        set(ring + RING_WRITE, write + (next() % 2 ? 8 * (next() % 64) : -8ull * (next() % 64)));
        break;
    case 3:
        set(ring + RING_EVENTS, odd());
        break;
    case 4:
        set(ring + RING_LOST + next() % 16 * 8, odd());
        break;
    case 5:
        set(ring + RING_CONSUMED, odd());
        break;
    case 6: /* The header of a sub-buffer. */
        set(data + next() % (ring_size / subbuf_size) * subbuf_size + next() % 5 * 8, odd());
        break;
    case 7: /* The head, the time or a count of a record, wherever it is. */
        set(data + (write - 8 * (next() % 64)) % ring_size / 8 * 8, odd());
        break;
    case 8:
        memmove(data + next() % (ring_size / 2), data + next() % (ring_size / 2), next() % 4096);
        break;
    case 9:
        if (fills > 0 && next() % 64 == 0) {
            fills--;
            fill(ring, 1);
        }
        break;
    default:
        if (next() % 16 == 0)
            scribble(&rings);
        else
            set(data + next() % (ring_size / 8) * 8, next() % 2 ? next() : odd());
    }
}

/* Copies a description of the catalog, changes a little, and appends it under a new number. */
static void grow_catalog(void)
{
    char *catalog = control.begin + CATALOG;
    uint64_t used = get(catalog);
    uint32_t size = *(uint32_t *)(catalog + 12), number = (uint32_t)(next() % 600);

    if (size > 4096 || used + size + 64 > CATALOG_SIZE)
        return;
    char *entry = catalog + 8 + used / 8 * 8;
    memcpy(entry + 8, catalog + 16, size);
    if (next() % 2)
        entry[8 + next() % (size + 1)] ^= (char)(1 << next() % 8);
    memcpy(entry, &(uint32_t[2]){number | (next() % 4 == 0 ? 1u << 31 : 0), size}, 8);
    set(catalog, used + (8 + size + 7) / 8 * 8);
}

static void damage_control(void)
{
    char *kept = control.begin + KEPT;
    uint64_t at = 8 + next() % (KEPT_SIZE / 64) * 8;

    switch (next() % 12) {
    case 0: /* Sizes, flags, selector, generation, the rules' length. */
        *(volatile uint32_t *)(control.begin + next() % 50 * 4) = (uint32_t)odd();
        break;
    case 1:
        set(control.begin + CONTROL_LOST + next() % 16 * 8, odd());
        break;
    case 2:
        if (next() % 64 == 0)
            set(control.begin + CONTROL_SNAPSHOTS, odd());
        break;
    case 3:
        set(control.begin + CATALOG, next() % 64 == 0 ? odd() : get(control.begin + CATALOG) + 8);
        break;
    case 4:
    case 5:
    case 6:
        grow_catalog();
        break;
    case 7: /* A length or a number in the catalog. */
        *(volatile uint32_t *)(control.begin + CATALOG + 8 + next() % 4096 * 4) = (uint32_t)odd();
        break;
    case 8: /* A kept event. */
        memcpy(kept + at + 8, &(uint64_t[3]){next() % 4 | (next() % 4) << 32, odd(), odd()}, 24);
        set(kept + at, (32 + next() % 32 * 8) | 1ull << 63);
        break;
    case 9:
        set(kept + next() % 64 * 8, odd());
        break;
    default:
        scribble(&control);
    }
}

/* Changes bytes while the session may be copying them. */
static void *flicker(void *seed)
{
    uint64_t own = (uint64_t)(uintptr_t)seed | 1;

    while (!atomic_load(&done)) {
        for (int i = 0; i < 64; i++) {
            own = own * 6364136223846793005u + 1442695040888963407u;
            rings.begin[RING_DATA + (own >> 20) % ring_size] ^= (char)(own >> 56);
        }
        usleep(50);
    }
    return NULL;
}

static void innocent(int until)
{
    char byte;
    uint64_t number = 0;

    for (;;) {
        for (int i = 0; i < 10; i++) {
            number++;
            TOMPION_EVENT(innocent, step, (u64, number, number));
        }
        usleep(200);
        if (read(until, &byte, 1) >= 0)
            break;
    }
    printf("innocent %d %llu\n", (int)getpid(), (unsigned long long)number);
    exit(0);
}

int main(int argc, char **argv)
{
    unsigned long corruptions = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    int pipes[2], flood = argc > 3;
    pthread_t thread;

    state = argc > 1 ? strtoul(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u | 1 : 1;
    fills = 3;
    TOMPION_EVENT(hostile, still_sound);
    TOMPION_EVENT(hostile, step, (u64, round, 0), (str, text, "some text"));
    TOMPION_EVENT_INIT(hostile, kept, (u64, round, 0));
    if (pipe2(pipes, 04000 /* O_NONBLOCK */) != 0)
        return 2;
    for (int child = 0; child < 2; child++) {
        pid_t pid = fork();
        if (pid < 0)
            return 2;
        if (pid == 0) {
            close(pipes[1]);
            innocent(pipes[0]);
        }
    }
    find_shared_memory();
    if (!flood && pthread_create(&thread, NULL, flicker, (void *)(uintptr_t)next()) != 0)
        return 2;
    for (unsigned long round = 0; round < corruptions; round++) {
        if (flood) {
            char *ring = some_ring();
            while (get(ring + RING_CONSUMED) < get(ring + RING_WRITE))
                usleep(20);
            fill(ring, round % 2);
            continue;
        }
        if (next() % 2)
            damage_ring();
        else
            damage_control();
        if (round % 16 == 0)
            TOMPION_EVENT(hostile, step, (u64, round, round), (str, text, "some text"));
        if (round % 4 == 0)
            usleep(50);
    }
    atomic_store(&done, 1);
    close(pipes[1]);
    while (wait(NULL) > 0)
        ;
    printf("corruptions %lu\n", corruptions);
    return 0;
}
