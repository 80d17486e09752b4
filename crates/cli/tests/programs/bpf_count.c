/* Prints the number of BPF programs in the kernel, of all processes (bpf(2)). */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROGRAM_NEXT_ID = 11 };

int main(void)
{
    unsigned int attributes[3] = {0, 0, 0};
    int count = 0;
    while (syscall(SYS_bpf, PROGRAM_NEXT_ID, attributes, sizeof attributes) == 0) {
        attributes[0] = attributes[1];
        count++;
    }
    printf("%d\n", count);
    return 0;
}
