/*
 * A thread `victim` that wants to run each 5 ms, and one above it, `hog`, that has the same CPU for
 * 60 ms each 250 ms. Runs until it is killed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MILLISECOND 1000000L

static void begin(const char *name, int priority)
{
	struct sched_param urgent = {.sched_priority = priority};
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	pthread_setname_np(pthread_self(), name);
	if (sched_setaffinity(0, sizeof(first), &first) || pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent)) {
		perror(name);
		exit(1);
	}
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 * MILLISECOND + time.tv_nsec;
}

static void sleep_until(long ns)
{
	struct timespec time = {ns / (1000 * MILLISECOND), ns % (1000 * MILLISECOND)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void *hog(void *nothing)
{
	begin("hog", 90);
	for (;;) {
		long end = now() + 60 * MILLISECOND;

		while (now() < end)
			;
		sleep_until(now() + 190 * MILLISECOND);
	}
	return nothing;
}

int main(void)
{
	pthread_t above;

	begin("victim", 80);
	if (pthread_create(&above, NULL, hog, NULL))
		return 1;
	for (;;)
		sleep_until(now() + 5 * MILLISECOND);
}
