/*
 * Runs a command and writes its times to a file, in nanoseconds, as JSON.
 *
 *   timed FILE COMMAND ARGUMENTS…
 *
 * Linked statically, so that a preloaded library does not measure the stopwatch, too.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t nanoseconds(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

int main(int count, char **arguments)
{
	if (count < 3) {
		fprintf(stderr, "usage: %s FILE COMMAND ARGUMENTS...\n", arguments[0]);
		return 2;
	}
	uint64_t begin = now();
	pid_t child = fork();
	if (child == 0) {
		execvp(arguments[2], arguments + 2);
		perror(arguments[2]);
		_exit(127);
	}
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("timed");
		return 1;
	}
	uint64_t wall = now() - begin;
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	FILE *file = fopen(arguments[1], "w");
	if (!file) {
		perror(arguments[1]);
		return 1;
	}
	fprintf(file, "{\"wall_ns\":%llu,\"user_ns\":%llu,\"system_ns\":%llu}\n", (unsigned long long)wall,
		(unsigned long long)nanoseconds(usage.ru_utime), (unsigned long long)nanoseconds(usage.ru_stime));
	fclose(file);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
