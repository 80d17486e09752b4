/*
 * Writes once over a ring of a flight recorder, bound to one CPU. Prints the page faults of that,
 * and the longest time that one event took, in nanoseconds.
 *
 *   first_pass EVENTS
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static long faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

int main(int count, char **arguments)
{
	uint64_t events = count > 1 ? strtoull(arguments[1], NULL, 10) : 1, longest = 0;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	/* The code's own pages. */
	TOMPION_EVENT(first_pass, step, (u64, number, 0), (u64, longest, longest));
	now();
	long before = faults();
	for (uint64_t i = 1; i <= events; i++) {
		uint64_t begin = now();
		TOMPION_EVENT(first_pass, step, (u64, number, i), (u64, longest, longest));
		uint64_t time = now() - begin;
		if (time > longest)
			longest = time;
	}
	printf("%ld %llu\n", faults() - before, (unsigned long long)longest);
	return 0;
}
