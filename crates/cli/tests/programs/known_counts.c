/*
 * Does things whose number is known: system calls, context switches, page faults. Counters of the
 * kernel's own (perf's and getrusage's) are read before and after each, between two calls of
 * getsid(), by which the trace is cut.
 *
 *   known_counts CALLS SWITCHES PAGES
 *       prints for each of the three: its name, the thread, the number that the program did, the
 *       counts of perf and getrusage, and the address of the pages
 *   known_counts only CALLS
 *       calls getpgid() this many times, and nothing else
 *   known_counts family DEPTH CHILDREN CALLS
 *       the same in each process of a tree with this depth and number of children; all live at the
 *       same time
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

/* What is counted of this thread. */
enum { CALLS, SWITCHES, FAULTS, COUNTERS };

struct reading {
    uint64_t counters[1 + COUNTERS]; /* their number comes first */
    struct rusage usage;
};

static int group = -1;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int open_counter(uint32_t type, uint64_t config)
{
    struct perf_event_attr attributes = {.size = sizeof attributes, .type = type, .config = config};
    attributes.read_format = PERF_FORMAT_GROUP;
    int counter = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, group, 0);
    if (counter < 0)
        fail("perf_event_open");
    if (group < 0)
        group = counter;
    return counter;
}

static void open_counters(void)
{
    uint64_t id = 0;
    FILE *file = fopen("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id", "r");
    if (!file || fscanf(file, "%lu", &id) != 1)
        fail("the number of sys_enter");
    fclose(file);
    open_counter(PERF_TYPE_TRACEPOINT, id);
    open_counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES);
    open_counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS);
}

/* Between two calls of getsid(). */
static struct reading counters(void)
{
    static struct reading now;
    getsid(0);
    if (read(group, now.counters, sizeof now.counters) != sizeof now.counters)
        fail("the counters");
    getrusage(RUSAGE_THREAD, &now.usage);
    getsid(0);
    return now;
}

static long switches_of(const struct rusage *usage)
{
    return usage->ru_nvcsw + usage->ru_nivcsw;
}

static long faults_of(const struct rusage *usage)
{
    return usage->ru_minflt + usage->ru_majflt;
}

static void make_calls(long count)
{
    for (long i = 0; i < count; i++)
        getpgid(0);
}

/* A byte goes to a child on the same CPU and comes back, each time by two switches. */
static void switch_tasks(long count)
{
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back))
        fail("pipe");
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    if (sched_setaffinity(0, sizeof cpu, &cpu))
        fail("sched_setaffinity");
    pid_t child = fork();
    if (child == 0) {
        for (long i = 0; i < count; i++)
            if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
                _exit(1);
        _exit(0);
    }
    for (long i = 0; i < count; i++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            fail("pipe");
    waitpid(child, 0, 0);
}

/* Ends with 1 if it or one of its own could not do all. */
static int family(long depth, long children, long calls)
{
    int status, failed = 0;
    for (long i = 0; depth > 0 && i < children; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(family(depth - 1, children, calls));
        failed |= child < 0;
    }
    make_calls(calls);
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}

static void touch(char *pages, long count)
{
    for (long i = 0; i < count; i++)
        pages[i * PAGE] = 1;
}

static void tell(const char *name, long done, struct reading before, int counter, const char *where)
{
    struct reading after = counters();
    long usage = counter == SWITCHES ? switches_of(&after.usage) - switches_of(&before.usage)
                                       : faults_of(&after.usage) - faults_of(&before.usage);
    printf("%s %d %ld %ld %ld %ld\n", name, gettid(), done,
           (long)(after.counters[1 + counter] - before.counters[1 + counter]), counter == CALLS ? -1 : usage,
           (long)where);
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "only")) {
        make_calls(atol(words[2]));
        return 0;
    }
    if (count == 5 && !strcmp(words[1], "family"))
        return family(atol(words[2]), atol(words[3]), atol(words[4]));
    if (count != 4)
        return 2;
    long calls = atol(words[1]), switches = atol(words[2]), pages = atol(words[3]);
    char *memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, pages * PAGE, MADV_NOHUGEPAGE))
        fail("memory");
    open_counters();
    counters(); /* What it touches is there afterwards. */
    struct reading before = counters();
    make_calls(calls);
    tell("calls", calls, before, CALLS, 0);
    before = counters();
    switch_tasks(switches);
    tell("switches", switches, before, SWITCHES, 0);
    before = counters();
    touch(memory, pages);
    tell("faults", pages, before, FAULTS, memory);
    return 0;
}
