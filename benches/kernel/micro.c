/*
 * micro WHAT COUNT CPUS: does something of the kernel's so often, on each of so many CPUs at the
 * same time, and prints how many nanoseconds one took (the mean of the slowest process). WHAT:
 *
 *   null      the system call getppid
 *   read      a byte from /dev/zero
 *   fault     the first touch of a page
 *   fork      a child that ends at once and is waited for
 *   switch    from one of two processes to the other, on the same CPU, by a byte through a pipe
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_PAGES 4096
#define MAX_CPUS 64

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static void call_nothing(long count)
{
    for (long i = 0; i < count; i++)
        syscall(SYS_getppid);
}

static void read_bytes(long count)
{
    char byte;
    int file = open("/dev/zero", O_RDONLY);
    for (long i = 0; i < count; i++)
        if (read(file, &byte, 1) != 1)
            fail("read");
    close(file);
}

static void touch_pages(long count)
{
    while (count > 0) {
        long pages = count < MAX_PAGES ? count : MAX_PAGES;
        char *memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fail("mmap");
        madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
        for (long i = 0; i < pages; i++)
            memory[i * PAGE] = 1;
        munmap(memory, pages * PAGE);
        count -= pages;
    }
}

static void have_children(long count)
{
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, 0, 0) != child)
            fail("fork");
    }
}

/* There and back are two switches. */
static void switch_tasks(long count)
{
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    close(there[0]);
    for (long i = 0; i < count; i += 2)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            fail("pipe");
    close(there[1]);
    waitpid(child, 0, 0);
}

static const struct {
    const char *name;
    void (*act)(long count);
} deeds[] = {
    {"null", call_nothing},
    {"read", read_bytes},
    {"fault", touch_pages},
    {"fork", have_children},
    {"switch", switch_tasks},
};

static void (*deed(const char *name))(long count)
{
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(deeds[i].name, name))
            return deeds[i].act;
    exit(2);
}

int main(int words, char **word)
{
    if (words != 4)
        return 2;
    void (*act)(long count) = deed(word[1]);
    long count = atol(word[2]);
    int cpus = atoi(word[3]), start[2], done[2];
    if (cpus < 1 || cpus > MAX_CPUS || pipe(start) || pipe(done))
        return 2;
    for (int cpu = 0; cpu < cpus; cpu++) {
        if (fork())
            continue;
        char byte;
        go_to(cpu);
        act(count / 20 + 1);
        close(start[1]);
        /* All begin when the parent has closed its end. */
        while (read(start[0], &byte, 1) > 0)
            ;
        double begin = now();
        act(count);
        double each = (now() - begin) / count;
        if (write(done[1], &each, sizeof each) != sizeof each)
            fail("write");
        _exit(0);
    }
    close(start[0]);
    close(start[1]);
    double slowest = 0, each;
    for (int cpu = 0; cpu < cpus; cpu++) {
        if (read(done[0], &each, sizeof each) != sizeof each)
            fail("a process");
        slowest = each > slowest ? each : slowest;
    }
    while (wait(0) > 0)
        ;
    printf("%.2f\n", slowest);
    return 0;
}
