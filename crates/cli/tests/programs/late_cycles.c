/*
 * 5,000 jobs of one thread on one CPU. Every 1,000th requests a snapshot at its end, as a program
 * does that finds it late. The jobs after it run while the snapshot is taken.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <unistd.h>

#include <tompion/tompion.h>

#define DEADLINE_NS 1000000000L

int main(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	(void)sched_setaffinity(0, sizeof(first), &first);
	for (int number = 0; number < 5000; number++) {
		{
			TOMPION_JOB(motor, cycle, DEADLINE_NS, (i32, number, number));
			TOMPION_COUNTER(motor, position, number);
			usleep(100);
		}
		if (number % 1000 == 500)
			tompion_snapshot();
	}
	return 0;
}
