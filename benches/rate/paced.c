/*
 * Emits events at a given rate, to find out which rate a recorder bears.
 *
 *   paced BODY PRODUCERS EVENTS_PER_SECOND MILLISECONDS
 *
 * Each producer, pinned to a CPU of its own, emits its share in each millisecond and sleeps for the
 * rest of it, if there is any. Before that, a warm-up of bursts with pauses touches the rings.
 * Prints a JSON line: all events emitted, warm-up and all, and by which factor the paced part took
 * longer than it should.
 */
#define _GNU_SOURCE
#include "loop.h"
#include "values.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_PRODUCERS 64
#define MILLISECOND 1000000
#define WARMUP_BURSTS 48
#define WARMUP_EVENTS 4000
#define PAUSE_US 5000

__thread uint64_t work_state __attribute__((tls_model("initial-exec"))) = 12345;

static void (*body)(uint64_t);
static double events_per_millisecond;
static uint64_t milliseconds;
static int cpus[MAX_PRODUCERS];
static uint64_t emitted[MAX_PRODUCERS];
static double stretched[MAX_PRODUCERS];
static pthread_barrier_t together;

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 * MILLISECOND + time.tv_nsec;
}

static void sleep_until(int64_t end)
{
	struct timespec time = { end / (1000 * MILLISECOND), end % (1000 * MILLISECOND) };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void *produce(void *argument)
{
	int producer = (int)(intptr_t)argument;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpus[producer], &set);
	sched_setaffinity(0, sizeof set, &set);
	prepare_thread();
	for (int burst = 0; burst < WARMUP_BURSTS; burst++) {
		body(WARMUP_EVENTS);
		usleep(PAUSE_US);
	}
	pthread_barrier_wait(&together);
	int64_t begin = now();
	uint64_t done = 0;
	for (uint64_t turn = 1; turn <= milliseconds; turn++) {
		uint64_t due = (uint64_t)((double)turn * events_per_millisecond);
		body(due - done);
		done = due;
		sleep_until(begin + (int64_t)turn * MILLISECOND);
	}
	stretched[producer] = (double)(now() - begin) / ((double)milliseconds * MILLISECOND);
	emitted[producer] = done + (uint64_t)WARMUP_BURSTS * WARMUP_EVENTS;
	return NULL;
}

static int find_cpus(void)
{
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 0;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && found < MAX_PRODUCERS; cpu--)
		if (CPU_ISSET(cpu, &set))
			cpus[found++] = cpu;
	return found;
}

static int choose(const char *name)
{
	for (const struct body *candidate = bodies; candidate->name; candidate++)
		if (strcmp(candidate->name, name) == 0)
			body = candidate->tight;
	return body != NULL;
}

int main(int count, char **arguments)
{
	int producers = count == 5 ? atoi(arguments[2]) : 0;
	if (producers < 1 || producers > find_cpus() || !choose(arguments[1])) {
		fprintf(stderr, "usage: %s BODY PRODUCERS EVENTS_PER_SECOND MILLISECONDS\n", arguments[0]);
		return 2;
	}
	events_per_millisecond = strtod(arguments[3], NULL) / 1000 / producers;
	milliseconds = strtoull(arguments[4], NULL, 10);
	fill_values();
	pthread_t handles[MAX_PRODUCERS];
	pthread_barrier_init(&together, NULL, (unsigned)producers);
	for (int producer = 0; producer < producers; producer++)
		pthread_create(&handles[producer], NULL, produce, (void *)(intptr_t)producer);
	uint64_t total = 0;
	double most_stretched = 0;
	for (int producer = 0; producer < producers; producer++) {
		pthread_join(handles[producer], NULL);
		total += emitted[producer];
		if (stretched[producer] > most_stretched)
			most_stretched = stretched[producer];
	}
	printf("{\"emitted\":%llu,\"stretched\":%.4f}\n", (unsigned long long)total, most_stretched);
	return 0;
}
