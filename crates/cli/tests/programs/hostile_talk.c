/*
 * `hostile_talk SEED CONNECTIONS`: says all sorts of things to its session over the socket, while
 * children that were forked before trace and mean no harm.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

/* See crates/protocol/src/message.rs. */
enum { HELLO = 1, FAILED = 2, VERSION = 1, LARGEST = 70000 };

static uint64_t state;
static unsigned long refusals, welcomes, resized;
static char message[LARGEST];
static size_t length;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int call(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv("TOMPION_SESSION");
    struct timeval timeout = {0, 20000};
    int talk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (!name || talk < 0)
        return -1;
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    setsockopt(talk, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(talk, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(talk, (struct sockaddr *)&address, size) != 0) {
        close(talk);
        return -1;
    }
    return talk;
}

static void begin(uint32_t kind, uint32_t version)
{
    memcpy(message, &kind, 4);
    memcpy(message + 4, &version, 4);
    length = 8;
}

static void number(uint32_t value)
{
    memcpy(message + length, &value, 4);
    length += 4;
}

static void text(const char *bytes, size_t size)
{
    number((uint32_t)size);
    memcpy(message + length, bytes, size);
    length += size;
}

/* A name of many bytes that do things to a terminal, and are no names of files. */
static void nasty_text(size_t size)
{
    static const char nasty[] = "\033[31;1m\033]0;owned\007../../\n\r\b\xc2\x9b"
                                "2J\xff\xfe%s\"\\/";
    char bytes[16384];

    for (size_t i = 0; i < size; i++)
        bytes[i] = nasty[i % (sizeof nasty - 1)];
    text(bytes, size);
}

static void hello(uint32_t pid, size_t name_size)
{
    begin(HELLO, VERSION);
    number(pid);
    number((uint32_t)next() % 4);
    number(3);
    text("0.1", 3);
    nasty_text(name_size);
    nasty_text(name_size);
}

static int say(int talk, const int *descriptors, int count)
{
    char control[CMSG_SPACE(253 * sizeof(int))] = {0};
    struct iovec vector = {message, length};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};

    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), descriptors, count * sizeof(int));
    }
    return sendmsg(talk, &header, MSG_NOSIGNAL) >= 0;
}

/* A connection that no process receives from, which takes an hour to close. */
static int slow_to_close(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger linger = {1, 3600};
    static char bytes[1 << 20];
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), end = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(end, (struct sockaddr *)&address, size) != 0)
        return -1;
    setsockopt(end, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    while (send(end, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    return end;
}

/* What came with a welcome: tries to take it back, to resize it, to make it a trap. */
static void abuse_memory(int talk)
{
    char bytes[64], control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec vector = {bytes, sizeof bytes};
    struct msghdr header = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int files[2];

    if (recvmsg(talk, &header, MSG_CMSG_CLOEXEC) < 4 || bytes[0] != 101) {
        refusals++;
        return;
    }
    welcomes++;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (!rights || rights->cmsg_len != CMSG_LEN(sizeof files))
        return;
    memcpy(files, CMSG_DATA(rights), sizeof files);
    for (int i = 0; i < 2; i++) {
        off_t size = lseek(files[i], 0, SEEK_END);
        resized += ftruncate(files[i], 0) == 0;
        resized += ftruncate(files[i], size * 2) == 0;
        resized += fcntl(files[i], F_ADD_SEALS, F_SEAL_WRITE) == 0;
        resized += lseek(files[i], 0, SEEK_END) != size;
        fallocate(files[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size);
        uint64_t *words = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, files[i], 0);
        if (words != MAP_FAILED) {
            for (int j = 0; j < 200; j++)
                words[j % 2 ? next() % 512 : next() % ((uint64_t)size / 8)] = next() >> next() % 64;
            munmap(words, (size_t)size);
        }
        close(files[i]);
    }
}

/* Whether the session can keep others from sending descriptors. Source: SO_PASSRIGHTS, Linux
 * 6.16. */
static int can_be_refused(int talk)
{
    int value;
    socklen_t size = sizeof value;
    return getsockopt(talk, SOL_SOCKET, 83, &value, &size) == 0;
}

static void talk_nonsense(void)
{
    int pipes[2], many[253], talk = call(), slow;

    if (talk < 0)
        return;
    switch (next() % 12) {
    case 0: /* Any bytes. */
        length = next() % LARGEST;
        for (size_t i = 0; i < length; i++)
            message[i] = (char)next();
        say(talk, NULL, 0);
        break;
    case 1: /* Another version, an unknown kind. */
        begin((uint32_t)(next() % 200), (uint32_t)(next() % 3));
        say(talk, NULL, 0);
        break;
    case 2: /* Cut off, or with a text that is longer than the message. */
        hello((uint32_t)getpid(), 100);
        length = next() % length;
        say(talk, NULL, 0);
        break;
    case 3: /* Longer than any message. */
        hello((uint32_t)getpid(), 16000);
        length = LARGEST - next() % 1000;
        say(talk, NULL, 0);
        break;
    case 4: /* A nasty name, with the parent's process id. */
        hello((uint32_t)getppid(), next() % 8000);
        if (say(talk, NULL, 0))
            abuse_memory(talk);
        break;
    case 5: /* Twice, then a reason. */
        hello((uint32_t)getpid(), 20);
        say(talk, NULL, 0);
        say(talk, NULL, 0);
        begin(FAILED, VERSION);
        nasty_text(next() % 4000);
        for (int i = 0; i < 20; i++)
            say(talk, NULL, 0);
        abuse_memory(talk);
        break;
    case 6: /* With descriptors. */
        if (pipe(pipes) == 0) {
            for (int i = 0; i < 253; i++)
                many[i] = pipes[i % 2];
            hello((uint32_t)getpid(), 20);
            say(talk, many, 1 + (int)(next() % 253));
            close(pipes[0]);
            close(pipes[1]);
        }
        break;
    case 7: /* With one that takes an hour to close. */
        hello((uint32_t)getpid(), 20);
        if (can_be_refused(talk) && next() % 8 == 0 && (slow = slow_to_close()) >= 0) {
            if (!say(talk, &slow, 1)) {
                /* The kernel forbids sending it; the test must not wait for an hour. */
                struct linger at_once = {1, 0};
                setsockopt(slow, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            }
            close(slow);
        }
        break;
    case 8: /* Silence. */
        if (next() % 8 == 0)
            return;
        break;
    default: /* In the middle. */
        hello((uint32_t)getpid(), 20);
        say(talk, NULL, 0);
    }
    close(talk);
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

/* Processes that come and go, at a time when others knock without end. */
static void newcomers(int until)
{
    char byte;
    unsigned long made = 0;

    while (read(until, &byte, 1) < 0) {
        pid_t child = fork();
        if (child == 0) {
            TOMPION_EVENT(newcomer, here);
            exit(0);
        }
        made += child > 0;
        waitpid(child, NULL, 0);
        usleep(3000);
    }
    printf("newcomers %lu\n", made);
    exit(0);
}

int main(int argc, char **argv)
{
    unsigned long connections = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    struct rlimit files = {4096, 4096};
    int pipes[2];

    state = argc > 1 ? strtoul(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u | 1 : 1;
    setrlimit(RLIMIT_NOFILE, &files);
    TOMPION_EVENT(hostile, still_sound);
    if (pipe2(pipes, O_NONBLOCK) != 0)
        return 2;
    for (int child = 0; child < 3; child++) {
        pid_t pid = fork();
        if (pid < 0)
            return 2;
        if (pid == 0) {
            close(pipes[1]);
            if (child == 2)
                newcomers(pipes[0]);
            innocent(pipes[0]);
        }
    }
    /* Speakers by the dozen: each is another process to the session. */
    for (unsigned long done = 0; done < connections;) {
        /* The session meets one half as processes that it knows, the other as strangers. */
        pid_t speaker = done % 200 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (speaker == 0) {
            close(pipes[1]);
            state += done;
            for (int i = 0; i < 100; i++)
                talk_nonsense();
            dprintf(1, "heard %lu %lu %lu\n", refusals, welcomes, resized);
            _exit(0);
        }
        done += 100;
        if (done % 400 == 0)
            while (waitpid(speaker, NULL, 0) > 0)
                ;
    }
    close(pipes[1]);
    while (wait(NULL) > 0)
        ;
    printf("connections %lu\n", connections);
    return 0;
}
