/*
 * Emits two events and a span in turn from several threads, until its input ends. A "p" there
 * pauses it, a "g" has it go on.
 *
 *   swapper THREADS
 */
#include <tompion/tompion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int is_over, is_paused;

static void *swap(void *unused)
{
	for (unsigned number = 0; !is_over; number++) {
		if (is_paused) {
			usleep(1000);
			continue;
		}
		TOMPION_EVENT(swapper, left, (u32, number, number));
		TOMPION_EVENT(swapper, right, (u32, number, number));
		TOMPION_BEGIN(swapper, turn, (u32, number, number));
		usleep(100);
		TOMPION_END(swapper, turn);
	}
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t threads[8];
	int number = count > 1 ? atoi(arguments[1]) : 1;
	for (int thread = 0; thread < number; thread++)
		pthread_create(&threads[thread], NULL, swap, NULL);
	printf("ready\n");
	fflush(stdout);
	for (int said = getchar(); said != EOF; said = getchar())
		is_paused = said == 'p' || (is_paused && said != 'g');
	is_over = 1;
	for (int thread = 0; thread < number; thread++)
		pthread_join(threads[thread], NULL);
	return 0;
}
