/*
 * Measures one body on pinned threads and prints a JSON line for each batch.
 *
 *   loop BODY SURROUNDINGS THREADS EVENTS BATCHES
 *
 * tight   EVENTS rounds a batch, nothing between them
 * work    the same amid dependent work
 * burst   EVENTS rounds a batch, then a pause, so that a consumer can keep up
 *
 * All threads begin a batch together. A warm-up of bursts with pauses comes first: it touches the
 * rings and gives a listener time to populate them. It is counted in "warmup" of the last line,
 * which tells how many events were emitted in all.
 *
 * With more threads than CPUs they share these, and what counts is the CPU time of each, not the
 * time that it waits for its turn.
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

#define MAX_THREADS 64
#define MAX_BATCHES 4096
#define WARMUP_BURSTS 48
#define WARMUP_EVENTS 4000
#define PAUSE_US 5000

__thread uint64_t work_state __attribute__((tls_model("initial-exec"))) = 12345;

static void (*body)(uint64_t);
static void (*warm_body)(uint64_t);
static int bursts;
static uint64_t events;
static int batches, threads;
static int cpus[MAX_THREADS], cpu_count;
static clockid_t stopwatch = CLOCK_MONOTONIC_RAW;
static pthread_barrier_t together;
static uint64_t elapsed[MAX_THREADS][MAX_BATCHES];

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(stopwatch, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0) {
		perror("sched_setaffinity");
		exit(1);
	}
}

/* Bursts of few events are bursts of large ones. */
static uint64_t warm_events(void)
{
	return events < WARMUP_EVENTS ? events : WARMUP_EVENTS;
}

static void *measure(void *argument)
{
	int thread = (int)(intptr_t)argument;
	pin(cpus[thread % cpu_count]);
	prepare_thread();
	for (int burst = 0; burst < WARMUP_BURSTS; burst++) {
		warm_body(warm_events());
		usleep(PAUSE_US);
	}
	for (int batch = 0; batch < batches; batch++) {
		if (bursts)
			usleep(PAUSE_US);
		pthread_barrier_wait(&together);
		uint64_t begin = now();
		body(events);
		elapsed[thread][batch] = now() - begin;
	}
	return NULL;
}

/* The CPUs that this process may use, from the last: interrupts and housekeeping prefer the
 * first. */
static int find_cpus(void)
{
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 0;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && found < MAX_THREADS; cpu--)
		if (CPU_ISSET(cpu, &set))
			cpus[found++] = cpu;
	return found;
}

static int choose(const char *name, const char *surroundings)
{
	for (const struct body *candidate = bodies; candidate->name; candidate++) {
		if (strcmp(candidate->name, name) != 0)
			continue;
		bursts = strcmp(surroundings, "burst") == 0;
		warm_body = candidate->tight;
		body = strcmp(surroundings, "work") == 0 ? candidate->work : candidate->tight;
		return 1;
	}
	return 0;
}

static void report(const char *name, const char *surroundings)
{
	for (int batch = 0; batch < batches; batch++) {
		uint64_t longest = 0;
		for (int thread = 0; thread < threads; thread++)
			if (elapsed[thread][batch] > longest)
				longest = elapsed[thread][batch];
		printf("{\"body\":\"%s\",\"surroundings\":\"%s\",\"threads\":%d,\"batch\":%d,"
		       "\"ns_per_event\":%.4f}\n",
		       name, surroundings, threads, batch, (double)longest / (double)events);
	}
	uint64_t warmup = (uint64_t)threads * WARMUP_BURSTS * warm_events();
	uint64_t measured = (uint64_t)threads * events * (uint64_t)batches;
	printf("{\"emitted\":%llu,\"warmup\":%llu}\n", (unsigned long long)(warmup + measured),
	       (unsigned long long)warmup);
}

int main(int count, char **arguments)
{
	if (count != 6 || !choose(arguments[1], arguments[2])) {
		fprintf(stderr, "usage: %s BODY tight|work|burst THREADS EVENTS BATCHES\n", arguments[0]);
		return 2;
	}
	threads = atoi(arguments[3]);
	events = strtoull(arguments[4], NULL, 10);
	batches = atoi(arguments[5]);
	cpu_count = find_cpus();
	if (threads < 1 || threads > MAX_THREADS || batches < 1 || batches > MAX_BATCHES || events == 0 ||
	    cpu_count == 0) {
		fprintf(stderr, "%s: at most %d threads and %d batches\n", arguments[0], MAX_THREADS,
			MAX_BATCHES);
		return 2;
	}
	if (threads > cpu_count)
		stopwatch = CLOCK_THREAD_CPUTIME_ID;
	fill_values();
	pthread_t handles[MAX_THREADS];
	pthread_barrier_init(&together, NULL, (unsigned)threads);
	for (int thread = 0; thread < threads; thread++)
		pthread_create(&handles[thread], NULL, measure, (void *)(intptr_t)thread);
	for (int thread = 0; thread < threads; thread++)
		pthread_join(handles[thread], NULL);
	report(arguments[1], arguments[2]);
	return 0;
}
