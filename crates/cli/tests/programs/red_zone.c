/*
 * `red_zone COUNT`: calls leaf functions that keep their data below the stack pointer, in the red
 * zone, with a 5-byte nop between store and load. One nop has no name, one is a mark. At the end it
 * prints how many calls found their data changed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MARK_NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#include "marks.h"

/* It begins with a 5-byte nop, too, as functions do that can be patched; the second one is 21 bytes
 * behind. */
uint64_t changed_in_function(uint64_t value);
asm(".text\n"
    ".globl changed_in_function\n"
    ".type changed_in_function, @function\n"
    ".balign 64\n"
    "changed_in_function:\n"
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
    "movq %rdi, -8(%rsp)\n"
    "movq %rdi, -16(%rsp)\n"
    "movq %rdi, -32(%rsp)\n"
    "nop\n"
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
    "movq -8(%rsp), %rax\n"
    "xorq %rdi, %rax\n"
    "movq -16(%rsp), %rdx\n"
    "xorq %rdi, %rdx\n"
    "orq %rdx, %rax\n"
    "movq -32(%rsp), %rdx\n"
    "xorq %rdi, %rdx\n"
    "orq %rdx, %rax\n"
    "ret\n"
    ".size changed_in_function, . - changed_in_function\n");

static __attribute__((noinline)) uint64_t changed_at_mark(volatile uint64_t value)
{
    volatile uint64_t kept[4] = {value, value + 1, value + 2, value + 3};

    MARK("zone", "inside", "0", "8@%0", "r"(value) : "memory");
    return (kept[0] ^ value) | (kept[1] ^ (value + 1)) | (kept[2] ^ (value + 2)) | (kept[3] ^ (value + 3));
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000, changed = 0;

    for (uint64_t number = 1; number <= count; number++)
        changed += (changed_in_function(number * 0x9e3779b97f4a7c15) != 0) + (changed_at_mark(number) != 0);
    printf("%lu changed\n", (unsigned long)changed);
    return changed != 0;
}
