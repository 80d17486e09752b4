/*
 * What `steps` counts: nothing, and events, between two breakpoints each. Several times, because
 * now and then an event opens a new sub-buffer; the smallest number counts.
 *
 *   counted expect-enabled | expect-disabled
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 8

#define COUNTED(number, statement)                                                 \
	do {                                                                       \
		__asm__ volatile("int3" : : "a"((uint64_t)(number)) : "memory");   \
		statement;                                                         \
		__asm__ volatile("int3" : : : "memory");                           \
	} while (0)

static volatile uint64_t first = 1, second = 2;
static const char *volatile text = "sixteen letters!";

static __attribute__((noinline)) void two(uint64_t a, uint64_t b)
{
	TOMPION_EVENT(bench, two, (u64, a, a), (u64, b, b));
}

static __attribute__((noinline)) void one_string(const char *value)
{
	TOMPION_EVENT(bench, one_string, (str, text, value));
}

/* Touches the rings, and gives a listener time to do its part. */
static void warm_up(void)
{
	for (int burst = 0; burst < 20; burst++) {
		for (int round = 0; round < 100; round++) {
			two(first, second);
			one_string(text);
		}
		usleep(5000);
	}
	two(first, 3); /* passes the filter of the filtered count */
}

int main(int count, char **arguments)
{
	int expected = count == 2 && strcmp(arguments[1], "expect-enabled") == 0;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0) {
		perror("sched_setaffinity");
		return 1;
	}
	warm_up();
	if (!!TOMPION_EVENT_ENABLED(bench, two) != expected) {
		fprintf(stderr, "counted: the event is %s\n", expected ? "disabled" : "enabled");
		return 1;
	}
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t a = first, b = second;
		const char *value = text;
		COUNTED(0, two(a, b));
		COUNTED(1, one_string(value));
	}
	return 0;
}
