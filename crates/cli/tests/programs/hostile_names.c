/*
 * `hostile_names TIMES`: takes part so many times, each time under a new name and with a catalog
 * that is full of made-up events. Children that were forked before trace meanwhile, harmlessly.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* See crates/layout and crates/protocol/src/message.rs. */
enum { HELLO = 1, VERSION = 1, WELCOME = 101, PAGE = 4096, CATALOG = 17 * PAGE, CATALOG_SIZE = 2 << 20 };

static char message[16384];
static size_t length;

static void put(const void *bytes, size_t size)
{
    memcpy(message + length, bytes, size);
    length += size;
}

static void number(uint32_t value)
{
    put(&value, 4);
}

static void text(const char *bytes)
{
    number((uint32_t)strlen(bytes));
    put(bytes, strlen(bytes));
}

/* A description of an event without fields, as crates/schema/src/description.rs has it. */
static size_t describe(char *place, uint32_t event, unsigned take)
{
    char name[32];
    uint16_t short_name = (uint16_t)(snprintf(name, sizeof name, "e%u_%u", take, event) + 1);
    uint32_t size = 20 + 2 + short_name;
    uint16_t header[8] = {1, 0 | 6 << 8, 0, 0, 2, short_name};

    memcpy(place, &event, 4);
    memcpy(place + 4, &size, 4);
    memcpy(place + 8, "TEV1", 4);
    memcpy(place + 12, &size, 4);
    memcpy(place + 16, header, 12);
    memcpy(place + 28, "x", 2);
    memcpy(place + 30, name, short_name);
    return (8 + size + 7) & ~(size_t)7;
}

static void fill_catalog(char *control, unsigned take)
{
    char *catalog = control + CATALOG;
    size_t used = 0;

    for (uint32_t event = 0; used + 128 < CATALOG_SIZE - 8; event++)
        used += describe(catalog + 8 + used, event, take);
    __atomic_store_n((uint64_t *)catalog, used, __ATOMIC_RELEASE);
}

static int take_part(unsigned take)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *session = getenv("TOMPION_SESSION");
    int talk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(session));
    char answer[512], rights[CMSG_SPACE(4 * sizeof(int))], path[4096];
    struct iovec vector = {answer, sizeof answer};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights};
    int files[2];

    memcpy(address.sun_path + 1, session, strlen(session));
    if (connect(talk, (struct sockaddr *)&address, size) != 0)
        return 0;
    length = 0;
    number(HELLO);
    number(VERSION);
    number((uint32_t)getpid());
    number(0);
    number(3);
    text("0.1");
    snprintf(path, sizeof path, "n%u", take);
    text(path);
    memset(path, 'a' + (char)(take % 26), sizeof path - 1);
    path[sizeof path - 1] = 0;
    text(path);
    if (send(talk, message, length, MSG_NOSIGNAL) < 0 || recvmsg(talk, &header, MSG_CMSG_CLOEXEC) < 4)
        return 0;
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    if (!first || *(uint32_t *)answer != WELCOME)
        return 0;
    memcpy(files, CMSG_DATA(first), sizeof files);
    char *control = mmap(NULL, CATALOG + CATALOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, files[0], 0);
    if (control == MAP_FAILED)
        return 0;
    fill_catalog(control, take);
    munmap(control, CATALOG + CATALOG_SIZE);
    close(files[0]);
    close(files[1]);
    close(talk);
    return 1;
}

/* Its first child, which is to be forked before it is hostile. */
static void innocent(int until)
{
    char byte;
    uint64_t number = 0;

    do {
        for (int i = 0; i < 10; i++) {
            number++;
            TOMPION_EVENT(innocent, step, (u64, number, number));
        }
        usleep(500);
    } while (read(until, &byte, 1) < 0);
    printf("innocent %d %llu\n", (int)getpid(), (unsigned long long)number);
    exit(0);
}

int main(int argc, char **argv)
{
    unsigned times = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1, taken = 0;
    int pipes[2];

    TOMPION_EVENT(hostile, still_sound);
    if (pipe2(pipes, O_NONBLOCK | O_CLOEXEC) != 0)
        return 2;
    for (int child = 0; child < 2; child++)
        if (fork() == 0) {
            close(pipes[1]);
            innocent(pipes[0]);
        }
    /* From a process of its own for every hundred: one may take part a thousand times. */
    for (unsigned done = 0; done < times; done += 100) {
        int count[2];
        unsigned of_child = 0;
        if (pipe(count) != 0)
            return 2;
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            for (unsigned i = done; i < done + 100 && i < times; i++)
                of_child += (unsigned)take_part(i);
            _exit(write(count[1], &of_child, sizeof of_child) != sizeof of_child);
        }
        if (read(count[0], &of_child, sizeof of_child) == sizeof of_child)
            taken += of_child;
        close(count[0]);
        close(count[1]);
        waitpid(child, NULL, 0);
    }
    close(pipes[1]);
    while (wait(NULL) > 0)
        ;
    printf("took part %u\n", taken);
    return 0;
}
