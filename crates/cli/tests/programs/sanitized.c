/*
 * Threads and allocations, for builds with sanitizers: without a fault, with a race, with memory
 * used after it was freed. Ends with 3 where nothing is found.
 *
 *   sanitized [race | freed]
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int shared, racing;

static void *work(void *unused)
{
	for (int i = 0; i < 1000; i++) {
		volatile char *memory = malloc(i + 1);
		memory[i] = 1;
		if (!racing)
			pthread_mutex_lock(&lock);
		shared++;
		if (!racing)
			pthread_mutex_unlock(&lock);
		free((void *)memory);
	}
	return unused;
}

static int count_threads(void)
{
	int count = -2; /* . and .. */
	DIR *tasks = opendir("/proc/self/task");
	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count;
}

int main(int count, char **arguments)
{
	const char *fault = count > 1 ? arguments[1] : "";
	pthread_t threads[4];
	printf("%d threads\n", count_threads());
	racing = strcmp(fault, "race") == 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	if (strcmp(fault, "freed") == 0) {
		volatile int *memory = malloc(sizeof *memory);
		free((void *)memory);
		shared += *memory;
	}
	if (!racing && strcmp(fault, "freed") != 0)
		printf("%d\n", shared);
	fflush(stdout);
	return 3;
}
