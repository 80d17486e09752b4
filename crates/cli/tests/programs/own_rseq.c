/*
 * `own_rseq HOW COUNT`: a program that does with restartable sequences what allocators do, while
 * two threads on one CPU record. Each keeps a register of its own sections that must come out
 * right, whatever the library does beside it.
 *
 *   own     registers an area of its own, of 32 bytes, where the C library has none
 *   long    one of 64 bytes
 *   cached  writes into the word `cpu_id_start` of its area, as tcmalloc does with pointers: of
 *           the C library's if there is one, else of its own. (Kernels kill for that where the area
 *           is longer than 32 bytes: not there.)
 *   taken   takes the C library's registration back, and registers an area of its own
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emit_log.h"

#ifndef SYS_rseq
#define SYS_rseq 334
#endif
#define SIGNATURE 0x53053053

struct area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t rseq_cs;
    uint32_t rest[60];
} __attribute__((aligned(256)));

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static __thread struct area own;
static __thread struct area *area;
static int size = 32, cached, taken;
static uint64_t counted;
static unsigned long count;

static struct area *of_libc(void)
{
    if (!&__rseq_size || __rseq_size == 0)
        return NULL;
    return (struct area *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

static void registers_area(void)
{
    area = of_libc();
    if (area && taken && syscall(SYS_rseq, area, 32, 1, SIGNATURE) != 0) {
        perror("own_rseq: the registration can't be taken back");
        exit(4);
    }
    if (area && !taken)
        return;
    area = &own;
    if (syscall(SYS_rseq, area, size, 0, SIGNATURE) != 0) {
        perror("own_rseq: rseq");
        exit(4);
    }
}

/* One addition to a word that all threads of the CPU share, without a lock: right only if it is
 * restarted. */
static void add_in_section(void)
{
#ifdef __x86_64__
    asm volatile(".pushsection __rseq_cs, \"aw\"\n"
                 ".balign 32\n"
                 "70: .long 0, 0\n"
                 ".quad 72f, 74f - 72f, 76f\n"
                 ".popsection\n"
                 "71: leaq 70b(%%rip), %%rax\n"
                 "movq %%rax, 8(%0)\n"
                 "72: movq (%1), %%rax\n"
                 "movl $20, %%ecx\n"
                 "73: pause\n"
                 "decl %%ecx\n"
                 "jnz 73b\n"
                 "incq %%rax\n"
                 "movq %%rax, (%1)\n"
                 "74:\n"
                 ".pushsection .text.unlikely, \"ax\"\n"
                 ".byte 0x0f, 0xb9, 0x3d\n"
                 ".long 0x53053053\n"
                 "76: jmp 71b\n"
                 ".popsection\n" ::"r"(area),
                 "r"(&counted)
                 : "rax", "rcx", "memory", "cc");
#else
    __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
#endif
}

static void *work(void *role)
{
    registers_area();
    if (area != &own && __rseq_size > 32)
        cached = 0;
    for (unsigned long number = 0; number < count; number++) {
        if (cached)
            __atomic_store_n(&area->cpu_id_start, 0x80000000u | (uint32_t)number, __ATOMIC_RELAXED);
        add_in_section();
        emit(role);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "own";
    pthread_t threads[2];
    cpu_set_t one;

    count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    size = strcmp(how, "long") == 0 ? 64 : 32;
    cached = strcmp(how, "cached") == 0;
    taken = strcmp(how, "taken") == 0;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    emit("main");
    for (int index = 0; index < 2; index++)
        pthread_create(&threads[index], NULL, work, index ? "second" : "first");
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    printf("counted %lu\n", (unsigned long)counted);
    return counted != 2 * count;
}
