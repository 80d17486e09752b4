/*
 * How long a single append takes, of very many: a whole program around EVENT(i), which the file
 * that includes this one defines, after _GNU_SOURCE.
 *
 *   gaps BURSTS EVENTS
 *
 * Bursts of so many events with pauses of 5 ms, in which a consumer can keep up. Around each event
 * the cycle counter is read, the second time when the event is over; the gap goes into a histogram
 * after that, so that its own accounting is in no gap. Prints a JSON line: the histogram as [ticks,
 * count] of each place that is not empty.
 *
 * The thread is pinned, under SCHED_FIFO, and memory is locked, where that is allowed; the line
 * tells. A first part, an eighth of the bursts but at most 64, is warm-up and in no histogram.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define PAUSE_US 5000
#define MAX_WARM_BURSTS 64
#define PRIORITY 50

/* Places of the histogram: each number of ticks below EXACT, then STEPS places for each power of
 * two. */
#define EXACT_BITS 12
#define EXACT (1u << EXACT_BITS)
#define STEP_BITS 6
#define STEPS (1u << STEP_BITS)
#define PLACES (EXACT + (48 - EXACT_BITS) * STEPS)

static uint64_t histogram[PLACES];
static uint64_t longest;

static inline unsigned place_of(uint64_t ticks)
{
	if (ticks < EXACT)
		return (unsigned)ticks;
	unsigned top = 63 - (unsigned)__builtin_clzll(ticks);
	if (top >= 48)
		return PLACES - 1;
	unsigned step = (unsigned)(ticks >> (top - STEP_BITS)) & (STEPS - 1);
	return EXACT + (top - EXACT_BITS) * STEPS + step;
}

/* The fewest ticks that have this place. */
static uint64_t ticks_of(unsigned place)
{
	if (place < EXACT)
		return place;
	unsigned top = (place - EXACT) / STEPS + EXACT_BITS, step = (place - EXACT) % STEPS;
	return (uint64_t)(STEPS + step) << (top - STEP_BITS);
}

static __attribute__((noinline)) void burst(uint64_t events, uint64_t *counts)
{
	for (uint64_t i = 0; i < events; i++) {
		unsigned processor;
		_mm_lfence();
		uint64_t begin = __rdtsc();
		_mm_lfence();
		EVENT(i);
		uint64_t end = __rdtscp(&processor);
		_mm_lfence();
		uint64_t gap = end - begin;
		counts[place_of(gap)]++;
		if (__builtin_expect(gap > longest, 0))
			longest = gap;
	}
}

static double seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int pin_to_last_cpu(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 0;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		return sched_setaffinity(0, sizeof set, &set) == 0;
	}
	return 0;
}

static void report(uint64_t emitted, double ticks_for_ns, int fifo, int locked)
{
	printf("{\"emitted\":%llu,\"ticks_for_ns\":%.9f,\"fifo\":%d,\"locked\":%d,\"longest\":%llu,\"histogram\":[",
	       (unsigned long long)emitted, ticks_for_ns, fifo, locked, (unsigned long long)longest);
	const char *comma = "";
	for (unsigned place = 0; place < PLACES; place++) {
		if (histogram[place] == 0)
			continue;
		printf("%s[%llu,%llu]", comma, (unsigned long long)ticks_of(place),
		       (unsigned long long)histogram[place]);
		comma = ",";
	}
	printf("]}\n");
}

int main(int count, char **arguments)
{
	uint64_t bursts = count == 3 ? strtoull(arguments[1], NULL, 10) : 0;
	uint64_t events = count == 3 ? strtoull(arguments[2], NULL, 10) : 0;
	uint64_t *unused = calloc(PLACES, sizeof *unused);
	if (bursts == 0 || events == 0 || !unused) {
		fprintf(stderr, "usage: %s BURSTS EVENTS\n", arguments[0]);
		return 2;
	}
	pin_to_last_cpu();
	int locked = mlockall(MCL_CURRENT | MCL_FUTURE) == 0;
	struct sched_param priority = { .sched_priority = PRIORITY };
	int fifo = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
	uint64_t warm_bursts = bursts / 8 < MAX_WARM_BURSTS ? bursts / 8 + 1 : MAX_WARM_BURSTS;
	for (uint64_t warm = 0; warm < warm_bursts; warm++) {
		burst(events, unused);
		usleep(PAUSE_US);
	}
	longest = 0;
	double begin = seconds();
	uint64_t first_tick = __rdtsc();
	for (uint64_t number = 0; number < bursts; number++) {
		usleep(PAUSE_US);
		burst(events, histogram);
	}
	double ticks = (double)(__rdtsc() - first_tick);
	report((bursts + warm_bursts) * events, ticks / ((seconds() - begin) * 1e9), fifo, locked);
	return 0;
}
