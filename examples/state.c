/*
 * A server that isn't one, with connections that are open for long: a recording that begins while
 * it runs has them all the same.
 *
 *     cc -std=c11 -O2 state.c -o state -ltompion -lpthread
 *     ./state 60 &
 *     timeout -s INT 1 tompion record -p state; tompion print
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tompion/tompion.h>

#define MAX_CONNECTIONS 16

struct connection {
    unsigned number;
    char peer[32];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connection open_ones[MAX_CONNECTIONS];
static unsigned open_count;

/* Called for each recording that begins, by a thread of the library. */
static void dump_connections(void *data)
{
    (void)data;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < open_count; i++)
        TOMPION_EVENT(server, connection, (u32, number, open_ones[i].number),
                      (str, peer, open_ones[i].peer));
    pthread_mutex_unlock(&lock);
}

static void connect_peer(unsigned number)
{
    struct connection *slot;

    pthread_mutex_lock(&lock);
    slot = &open_ones[open_count++];
    slot->number = number;
    snprintf(slot->peer, sizeof slot->peer, "10.0.0.%u", number);
    TOMPION_EVENT(server, connected, (u32, number, number), (str, peer, slot->peer));
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    struct timespec pause = {0, 10 * 1000 * 1000};

    for (unsigned number = 1; number <= 3; number++)
        connect_peer(number);
    tompion_state_dump(dump_connections, NULL);
    for (unsigned i = 0; i < seconds * 100; i++) {
        TOMPION_EVENT(server, request, (u32, connection, i % 3 + 1));
        nanosleep(&pause, NULL);
    }
    tompion_state_dump_remove(dump_connections, NULL);
    return 0;
}
