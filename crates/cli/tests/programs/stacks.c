/*
 * Functions that call each other, with frame pointers, down to a system call.
 *
 *   stacks ROUNDS [linger]    calls this many times; then stays for a while, so that its memory can
 *                             be read
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not by a library, whose functions have no frame pointers. */
static inline long ask(void)
{
#if defined(__x86_64__)
    long result = SYS_getpgid;
    asm volatile("syscall" : "+a"(result) : "D"(0L) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number asm("x8") = SYS_getpgid, result asm("x0") = 0;
    asm volatile("svc 0" : "+r"(result) : "r"(number) : "memory");
    return result;
#else
    return getpgid(0);
#endif
}

__attribute__((noinline)) long inner(long round)
{
    /* Reading the frame's address forces a frame, also in a leaf function. */
    asm volatile("" ::"r"(__builtin_frame_address(0)));
    return ask() + round;
}

__attribute__((noinline)) long middle(long round)
{
    return inner(round) + 1;
}

__attribute__((noinline)) long outer(long rounds)
{
    long sum = 0;
    for (long round = 0; round < rounds; round++)
        sum += middle(round);
    return sum;
}

int main(int count, char **words)
{
    long sum = outer(count > 1 ? atol(words[1]) : 1);
    if (count > 2 && strcmp(words[2], "linger") == 0)
        sleep(2);
    return sum < 0;
}
