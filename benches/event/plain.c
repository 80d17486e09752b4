/* What an event is compared with: nothing, bare clocks, and a per-thread queue's plain stores. */
#define _GNU_SOURCE
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t read_counter(void)
{
	return __rdtsc();
}
#elif defined(__aarch64__)
static inline uint64_t read_counter(void)
{
	uint64_t value;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
}
#else
#error "no cycle counter known for this architecture"
#endif

#define QUEUE_SIZE (4u << 20)
#define SUBBUF_SIZE (1u << 20)
#define RECORD_SIZE 24u

/* The queue that an asynchronous logger keeps for each thread: one producer, one consumer. */
struct queue {
	_Alignas(64) uint64_t head;
	char *data;
};

static __thread struct queue queue __attribute__((tls_model("initial-exec")));

static inline __attribute__((always_inline)) void append(uint64_t event, uint64_t a, uint64_t b)
{
	uint64_t head = queue.head;
	if (__builtin_expect((head & (SUBBUF_SIZE - 1)) + RECORD_SIZE > SUBBUF_SIZE, 0))
		head = (head + SUBBUF_SIZE - 1) & ~(uint64_t)(SUBBUF_SIZE - 1);
	uint64_t *record = (uint64_t *)(void *)(queue.data + (head & (QUEUE_SIZE - 1)));
	record[1] = a;
	record[2] = b;
	record[0] = read_counter() << 16 | event;
	__atomic_store_n(&queue.head, head + RECORD_SIZE, __ATOMIC_RELEASE);
}

static inline uint64_t read_clock(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_nsec;
}

void prepare_thread(void)
{
	int how = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
	queue.data = mmap(NULL, QUEUE_SIZE, PROT_READ | PROT_WRITE, how, -1, 0);
	if (queue.data == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
}

BODY(empty, __asm__ volatile("" : : "r"(i)))
BODY(counter, sink += read_counter())
BODY(clock, sink += read_clock())
BODY(queue, append(7, i, i ^ 0x55))

const struct body bodies[] = { ENTRY(empty), ENTRY(counter), ENTRY(clock), ENTRY(queue), { 0 } };
