/*
 * Writes events as fast as it can, each with a time by CLOCK_MONOTONIC at which it was not written
 * yet, until its standard input ends. Says when its events are recorded.
 */
#include <tompion/tompion.h>

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static int input_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 0) > 0;
}

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(void)
{
	int announced = 0;
	while (!input_ended()) {
		if (!announced && TOMPION_EVENT_ENABLED(flood, drop)) {
			announced = 1;
			printf("recorded\n");
			fflush(stdout);
		}
		for (int round = 0; round < 100; round++) {
			uint64_t time = now();
			for (int number = 0; number < 10; number++)
				TOMPION_EVENT(flood, drop, (u64, time, time), (u32, number, number));
		}
	}
	return 0;
}
