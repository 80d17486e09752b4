/*
 * Spans within each other, with and without fields that a filter can ask for. Before that, it waits
 * until its standard input ends.
 */
#include <poll.h>
#include <stdio.h>

#include <tompion/tompion.h>

static int input_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 1) > 0;
}

int main(void)
{
	printf("ready\n");
	fflush(stdout);
	while (!input_ended())
		TOMPION_EVENT(spans, waiting, (i32, rows, 0));
	for (int i = 0; i < 10; i++) {
		TOMPION_SPAN(spans, outer, (i32, rows, i));
		TOMPION_SPAN(spans, inner, (str, parity, i % 2 ? "odd" : "even"), (i32, rows, 9 - i));
		TOMPION_SPAN(spans, bare);
		TOMPION_JOB(spans, job, 1000, (i32, rows, i));
	}
	printf("10\n");
	return 0;
}
