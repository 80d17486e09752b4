/*
 * Counts in events at a pace that a recorder can follow, and prints how far each thread came.
 *
 *   paced THREADS MILLISECONDS BURST
 *
 * Each thread records BURST numbers a millisecond. One event of the initial state comes first.
 * Lines: "PID THREAD COUNT".
 */
#include <tompion/tompion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 16

static unsigned long milliseconds, burst;
static unsigned long counts[MAX_THREADS];

static unsigned long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ul + time.tv_nsec / 1000000;
}

static void *count(void *argument)
{
	unsigned long thread = (unsigned long *)argument - counts, number = 0;
	unsigned long end = now() + milliseconds;
	while (now() < end) {
		for (unsigned long i = 0; i < burst; i++) {
			number++;
			TOMPION_EVENT(paced, step, (u32, process, (uint32_t)getpid()),
				      (u32, thread, (uint32_t)thread), (u64, number, number));
		}
		usleep(1000);
	}
	counts[thread] = number;
	return NULL;
}

int main(int words, char **arguments)
{
	pthread_t threads[MAX_THREADS];
	unsigned many = words > 1 ? (unsigned)atoi(arguments[1]) : 1;
	milliseconds = words > 2 ? strtoul(arguments[2], NULL, 10) : 100;
	burst = words > 3 ? strtoul(arguments[3], NULL, 10) : 1;
	if (many > MAX_THREADS)
		return 1;
	TOMPION_EVENT_INIT(paced, settings, (u32, process, (uint32_t)getpid()));
	for (unsigned i = 0; i < many; i++)
		pthread_create(&threads[i], NULL, count, &counts[i]);
	for (unsigned i = 0; i < many; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < many; i++)
		printf("%d %u %lu\n", (int)getpid(), i, counts[i]);
	return 0;
}
