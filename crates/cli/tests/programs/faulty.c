/* `faulty HOW`: programs that are faulty in one way each.
 *
 *   torn      hangs in the middle of an event (a field's memory can't be read), after others
 *   far       stores a position into its rings that can't be, once, and stays for a second
 *   barred    forbids itself membarrier(2), and becomes `faulty calm`
 *   calm      records ten events
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tompion/tompion.h>

static void emit(unsigned from, unsigned to)
{
    for (unsigned number = from; number < to; number++)
        TOMPION_EVENT(faulty, calm, (u32, number, number));
}

static void on_fault(int signal)
{
    static const char caught[] = "caught\n";
    (void)signal;
    if (write(1, caught, sizeof caught - 1) < 0)
        _exit(1);
    for (;;)
        pause();
}

static int torn(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    emit(0, 5);
    /* Their packet is written. */
    usleep(1200 * 1000);
    emit(5, 8);
    char *closed = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, on_fault);
    TOMPION_EVENT(faulty, torn, (bytes, text, closed, 2000));
    return 1;
}

static int far(void)
{
    emit(0, 10);
    usleep(100 * 1000);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    uintptr_t begin, end;
    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, "tompion-rings") && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
            for (uintptr_t page = begin; page < end; page += 4096) {
                /* A used ring's header: its position, and the events before it. */
                volatile uint64_t *ring = (volatile uint64_t *)page;
                if (ring[0] >= 40 && ring[0] < 4096 && ring[1] > 0 && ring[1] <= 10)
                    ring[0] = (uint64_t)1 << 40;
            }
            break;
        }
    }
    sleep(1);
    return 0;
}

static int barred(char *self)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    execl(self, self, "calm", (char *)NULL);
    return 1;
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "torn") == 0)
        return torn();
    if (strcmp(how, "far") == 0)
        return far();
    if (strcmp(how, "barred") == 0)
        return barred(words[0]);
    emit(0, 10);
    return 0;
}
