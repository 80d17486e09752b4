/*
 * Emits events for a while from some threads, then tells the memory of this process and of others.
 *
 *   busy BODY THREADS MILLISECONDS [parent|PREFIX]
 *
 * Threads are pinned to CPUs of their own and emit 1,000 events in each millisecond. Then, with the
 * threads still there, a JSON line is printed for this process and for the others: its parent, or
 * all whose name begins with the prefix. RSS is what a process has in memory, PSS the same with
 * shared pages divided among those who share them; both in KiB.
 */
#define _GNU_SOURCE
#include "loop.h"
#include "values.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64
#define EVENTS 1000
#define PAUSE_US 1000

__thread uint64_t work_state __attribute__((tls_model("initial-exec"))) = 12345;

static void (*body)(uint64_t);
static int rounds;
static int cpus[MAX_THREADS];
static pthread_barrier_t done, reported;

static void *be_busy(void *argument)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpus[(intptr_t)argument], &set);
	sched_setaffinity(0, sizeof set, &set);
	prepare_thread();
	for (int round = 0; round < rounds; round++) {
		body(EVENTS);
		usleep(PAUSE_US);
	}
	pthread_barrier_wait(&done);
	pthread_barrier_wait(&reported);
	return NULL;
}

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

static void tell(const char *what, pid_t pid)
{
	char path[64], line[256];
	long rss = 0, pss = 0;
	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	FILE *file = fopen(path, "r");
	if (!file)
		return;
	while (fgets(line, sizeof line, file)) {
		sscanf(line, "Rss: %ld kB", &rss);
		sscanf(line, "Pss: %ld kB", &pss);
	}
	fclose(file);
	printf("{\"process\":\"%s\",\"rss_kib\":%ld,\"pss_kib\":%ld}\n", what, rss, pss);
}

/* All processes whose name begins so. */
static void tell_all(const char *prefix)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	while (processes && (entry = readdir(processes)) != NULL) {
		char path[300], name[32] = "";
		snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
		FILE *file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		int found = fgets(name, sizeof name, file) && strncmp(name, prefix, strlen(prefix)) == 0;
		fclose(file);
		name[strcspn(name, "\n")] = 0;
		if (found)
			tell(name, atoi(entry->d_name));
	}
	if (processes)
		closedir(processes);
}

int main(int count, char **arguments)
{
	int threads = count >= 4 ? atoi(arguments[2]) : 0;
	for (const struct body *candidate = bodies; candidate->name && count >= 4; candidate++)
		if (strcmp(candidate->name, arguments[1]) == 0)
			body = candidate->tight;
	if (threads < 1 || threads > find_cpus() || !body) {
		fprintf(stderr, "usage: %s BODY THREADS MILLISECONDS [parent|PREFIX]\n", arguments[0]);
		return 2;
	}
	rounds = atoi(arguments[3]) * 1000 / PAUSE_US;
	fill_values();
	pthread_t handles[MAX_THREADS];
	pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&reported, NULL, (unsigned)threads + 1);
	for (int thread = 0; thread < threads; thread++)
		pthread_create(&handles[thread], NULL, be_busy, (void *)(intptr_t)thread);
	pthread_barrier_wait(&done);
	tell("self", getpid());
	if (count > 4 && strcmp(arguments[4], "parent") == 0)
		tell("parent", getppid());
	else if (count > 4)
		tell_all(arguments[4]);
	pthread_barrier_wait(&reported);
	for (int thread = 0; thread < threads; thread++)
		pthread_join(handles[thread], NULL);
	return 0;
}
