/*
 * A real-time program's loop: all its memory is locked, also what it gets later. Counts in events,
 * one a millisecond, until its standard input ends.
 */
#include <tompion/tompion.h>

#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>

static int input_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 1) > 0;
}

int main(void)
{
	unsigned number = 0;
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
		printf("refused\n");
		return 77;
	}
	printf("ready\n");
	fflush(stdout);
	do {
		TOMPION_EVENT(locked_loop, round, (u32, number, ++number));
	} while (!input_ended());
	printf("%u\n", number);
	return 0;
}
