/* A real-time thread of a name that sleeps so often: napper NAME TIMES */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **arguments)
{
	struct sched_param priority = {.sched_priority = 60};
	struct timespec nap = {.tv_nsec = 500 * 1000};
	if (count != 3 || sched_setscheduler(0, SCHED_FIFO, &priority)) {
		perror("expected NAME TIMES and the right to a real-time priority");
		return 1;
	}
	pthread_setname_np(pthread_self(), arguments[1]);
	for (int times = atoi(arguments[2]); times > 0; times--)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	return 0;
}
