/* `limited memory BYTES PLUGIN`: loads a plugin with so many bytes of address space left.
 * `limited files`: says "ready", may open no more files, and says at the end (of its input) how
 * many milliseconds
 *     of the processor's time it took from then on.
 * `limited stack`: records in signal handlers that have a small stack, with context of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static void limit(int what, rlim_t most)
{
    const struct rlimit limit = {most, most};
    if (setrlimit(what, &limit) != 0) {
        perror("setrlimit");
        exit(1);
    }
}

static long address_space(void)
{
    char line[128];
    long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        (void)sscanf(line, "VmSize: %ld", &kilobytes);
    if (status)
        fclose(status);
    return kilobytes * 1024;
}

static int with_little_memory(long room, const char *plugin)
{
    void *loaded;
    limit(RLIMIT_AS, (rlim_t)(address_space() + room));
    loaded = dlopen(plugin, RTLD_NOW);
    if (loaded)
        puts("loaded");
    for (int i = 0; i < 10; i++)
        TOMPION_EVENT(limited, tick, (i32, number, i));
    if (loaded)
        dlclose(loaded);
    puts("went on");
    return 0;
}

static int without_files(void)
{
    char byte;
    clock_t begin;
    TOMPION_EVENT(limited, tick, (i32, number, 0));
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) != 1)
        return 1;
    limit(RLIMIT_NOFILE, 0);
    puts("none");
    fflush(stdout);
    begin = clock();
    while (read(0, &byte, 1) == 1)
        ;
    printf("%ld\n", (long)((clock() - begin) / (CLOCKS_PER_SEC / 1000)));
    return 0;
}

static int64_t request(void)
{
    return 7;
}

static size_t tenant(char *buffer, size_t size)
{
    memset(buffer, 't', size);
    return size;
}

static void handle(int signal)
{
    TOMPION_EVENT(limited, handled, (i32, signal, signal), (str, text, "a text"), (bytes, data, "12345", 5));
    TOMPION_EVENT_INIT(limited, noted, (i32, signal, signal), (str, text, "a text"));
}

/* As large as stacks for signals are by default, where the processor's state leaves 4.5 KiB of
 * that. */
static int with_a_small_stack(void)
{
    const size_t state = getauxval(AT_MINSIGSTKSZ), size = (state > 2048 ? state : 2048) + 4608;
    const size_t page = 4096, whole = (size + page - 1) / page * page;
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_size = size};
    char *memory = mmap(NULL, page + whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        return 1;
    stack.ss_sp = memory + page;
    if (tompion_context_i64("limited:request", request) | tompion_context_text("limited:tenant", tenant))
        return 1;
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        return 1;
    for (int i = 0; i < 10; i++)
        raise(SIGUSR1);
    return 0;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "memory") == 0 && count == 4)
        return with_little_memory(atol(words[2]), words[3]);
    if (strcmp(what, "files") == 0)
        return without_files();
    if (strcmp(what, "stack") == 0)
        return with_a_small_stack();
    return 2;
}
