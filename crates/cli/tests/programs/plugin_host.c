/*
 * Loads a plugin, calls it, and unloads it, so many times; a second thread asks all the while
 * whether the plugin's event is enabled. Prints by how much the process has grown since a tenth of
 * the way, in KiB.
 *
 *   plugin_host PLUGIN TIMES
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int over;
static atomic_long enabled_unloaded;
static atomic_long phase; /* odd from before a plugin is loaded until after it is unloaded */

static long resident_kib(void)
{
	long size = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
		exit(3);
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *watch(void *argument)
{
	(void)argument;
	unsigned long asked = 0;
	while (!over) {
		long before = phase;
		if (TOMPION_EVENT_ENABLED(plugin, called) && before % 2 == 0 && phase == before)
			enabled_unloaded++;
		if (++asked % 1024 == 0)
			TOMPION_EVENT(host, asked, (u64, times, asked));
		usleep(10);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	long times = atol(arguments[2]), early = 0;
	pthread_t watcher;
	pthread_create(&watcher, NULL, watch, NULL);
	for (long round = 0; round < times; round++) {
		phase++;
		void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
		if (!plugin) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		void (*call)(long) = (void (*)(long))dlsym(plugin, "plugin_call");
		call(round);
		dlclose(plugin);
		phase++;
		if (round == times / 10)
			early = resident_kib();
	}
	over = 1;
	pthread_join(watcher, NULL);
	printf("%ld %ld\n", resident_kib() - early, (long)enabled_unloaded);
	return 0;
}
