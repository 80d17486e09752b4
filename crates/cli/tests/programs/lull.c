/*
 * Fills rings, is idle until it is told to go on, and fills them again; its events are numbered.
 *
 *   lull EVENTS MILLISECONDS      the number of events of each part; bound to one CPU
 *
 * Prints `ready` behind the first part. Reads a line before the second one. In between each line
 * but the last is answered by one event. With MILLISECONDS, both parts take so long.
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long number;

static void fill(unsigned long events, unsigned milliseconds)
{
	unsigned long each = milliseconds ? events / milliseconds + 1 : events;
	for (unsigned long i = 0; i < events; i++) {
		TOMPION_EVENT(lull, step, (u64, number, ++number), (u64, twice, 2 * number));
		if (milliseconds && i % each == 0)
			usleep(1000);
	}
}

int main(int count, char **arguments)
{
	unsigned long events = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
	unsigned milliseconds = count > 2 ? (unsigned)atoi(arguments[2]) : 0;
	char line[16];
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	/* Until it is recorded. */
	for (int i = 0; i < 20000 && !TOMPION_EVENT_ENABLED(lull, step); i++)
		usleep(1000);
	fill(events, milliseconds);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin) && strcmp(line, "go\n") != 0)
		fill(1, 0);
	fill(events, milliseconds);
	printf("%lu\n", number);
	return 0;
}
