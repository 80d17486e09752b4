/*
 * Records numbered events from two threads, and now and then a numbered event of the initial state,
 * until the file STOP is there. It prints the number of each.
 *
 *   restated STOP
 */
#include <tompion/tompion.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define PERIOD 20

static const char *stop;
static unsigned long steps[2], states[2];

static void *run(void *argument)
{
	unsigned long self = (unsigned long *)argument - steps;
	while (access(stop, F_OK) != 0) {
		for (int i = 0; i < 20; i++) {
			steps[self]++;
			TOMPION_EVENT(restated, step, (u64, thread, self), (u64, number, steps[self]));
		}
		if (steps[self] % (20 * PERIOD) == 0) {
			states[self]++;
			TOMPION_EVENT_INIT(restated, state, (u64, thread, self), (u64, number, states[self]));
		}
		usleep(1000);
	}
	return NULL;
}

int main(int words, char **arguments)
{
	pthread_t threads[2];
	if (words < 2)
		return 1;
	stop = arguments[1];
	for (int i = 0; i < 2000 && !TOMPION_EVENT_ENABLED(restated, step); i++)
		usleep(1000);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, run, &steps[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		printf("%d %lu %lu\n", i, steps[i], states[i]);
	return 0;
}
