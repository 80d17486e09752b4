/*
 * Requests, some of which trigger something:
 *
 *   requests values                one of each kind
 *   requests flood THREADS EACH    all threads at once, numbered from 0 on
 *   requests spans                 spans and jobs of 1 ms and 20 ms
 *   requests mixed                 spans in spans, recursive ones, and ones that overlap
 *   requests killed                one slow request, then the end by SIGKILL
 *   requests children COUNT        one slow request of each of so many children in a row
 *   requests vfork                 one slow request of a vfork child
 *   requests scribble SEED         slow requests, while the region of the triggers is overwritten
 *
 * It begins when a recording waits for its requests, says "ready", and ends when its input does.
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TOMPION_ENUM(request_state, (queued, 0), (served, 1), (failed, -9, -1));

static void request(uint32_t number, uint64_t ns, const char *url, int state)
{
	TOMPION_EVENT(app, request, (u32, number, number), (u64, ns, ns), (str, url, url),
		      (enum, state, request_state, state), (f64, load, (double)ns / 4));
}

static unsigned each;

static void *flood(void *unused)
{
	for (unsigned number = 0; number < each; number++)
		request(number, 1000, "/flood", 0);
	return unused;
}

static void values(void)
{
	char long_url[1000];
	request(1, 5000000, "/fast", 1);
	request(2, 25000000, "/slow", 0);
	request(3, 0, "/orders/17", 1);
	request(4, 0, "/", -3);
	memset(long_url, 'x', sizeof long_url - 1);
	long_url[sizeof long_url - 1] = 0;
	request(5, 0, long_url, 0);
	TOMPION_EVENT(app, other, (u32, number, 6));
}

static void span(uint32_t number, unsigned us)
{
	TOMPION_SPAN(app, work, (u32, number, number), (str, url, us > 10000 ? "/slow" : "/fast"));
	usleep(us);
}

static void job(uint32_t number, uint64_t deadline_ns)
{
	TOMPION_JOB(app, cycle, deadline_ns, (u32, number, number));
	usleep(5000);
}

static void *nested(void *unused)
{
	TOMPION_BEGIN(app, outer, (u32, number, 7));
	span(8, 20000);
	TOMPION_END(app, outer);
	return unused;
}

static void spans(void)
{
	pthread_t thread;
	span(1, 1000);
	span(2, 20000);
	span(3, 1000);
	job(4, 1000000);
	job(5, 10000000000);
	job(6, 0);
	request(9, 0, "/", 1);
	pthread_create(&thread, NULL, nested, NULL);
	pthread_join(thread, NULL);
}

static void walk(uint32_t depth)
{
	TOMPION_SPAN(app, walk, (u32, number, 10 + depth), (u32, depth, depth));
	if (depth < 2)
		walk(depth + 1);
	usleep(15000);
}

static void step(uint32_t number, uint64_t deadline_ns)
{
	TOMPION_JOB(app, step, deadline_ns, (u32, number, number));
	if (deadline_ns)
		step(number + 1, 0);
	usleep(5000);
}

static void mixed(void)
{
	TOMPION_BEGIN(app, handle, (u32, number, 1), (u32, kind, 1));
	usleep(15000);
	TOMPION_BEGIN(app, part, (u32, number, 2));
	usleep(15000);
	TOMPION_END(app, part);
	usleep(15000);
	TOMPION_END(app, handle);
	walk(0);
	step(20, 1000000);
	TOMPION_BEGIN(app, cross_a, (u32, number, 30));
	usleep(15000);
	TOMPION_BEGIN(app, cross_b, (u32, number, 31));
	usleep(15000);
	TOMPION_END(app, cross_a);
	usleep(15000);
	TOMPION_END(app, cross_b);
	request(9, 0, "/", 1);
}

static void children(unsigned count)
{
	for (unsigned number = 0; number < count; number++) {
		pid_t child = fork();
		if (child == 0) {
			request(number, 20000000, "/child", 1);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

/* The region behind the pinned events, see crates/layout. */
static void scribble(unsigned long seed)
{
	enum { REGION = 17 * 4096 + (3 << 20), SIZE = 10 * 4096 };
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], *control = NULL;
	unsigned long begin;
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "memfd:tompion-control") && sscanf(line, "%lx-", &begin) == 1)
			control = (char *)begin;
	fclose(maps);
	if (!control)
		exit(3);
	for (unsigned number = 0; number < 20000; number++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		unsigned place = (unsigned)(seed >> 33) % SIZE;
		if (seed >> 62 == 0)
			place = (unsigned)(seed >> 33) % 512;
		control[REGION + place] = (char)(seed >> 20);
		if (number % 8 == 0)
			request(number, 20000000, "/scribble", 1);
	}
}

int main(int count, char **arguments)
{
	const char *how = count > 1 ? arguments[1] : "values";
	pthread_t threads[16];
	while (!TOMPION_EVENT_ENABLED(app, request))
		usleep(1000);
	printf("ready\n");
	fflush(stdout);
	getchar();
	if (strcmp(how, "flood") == 0) {
		unsigned number = (unsigned)atoi(arguments[2]);
		each = (unsigned)atoi(arguments[3]);
		for (unsigned thread = 0; thread < number; thread++)
			pthread_create(&threads[thread], NULL, flood, NULL);
		for (unsigned thread = 0; thread < number; thread++)
			pthread_join(threads[thread], NULL);
	} else if (strcmp(how, "spans") == 0) {
		spans();
	} else if (strcmp(how, "mixed") == 0) {
		mixed();
	} else if (strcmp(how, "killed") == 0) {
		request(1, 20000000, "/last", 1);
		raise(SIGKILL);
	} else if (strcmp(how, "children") == 0) {
		children((unsigned)atoi(arguments[2]));
	} else if (strcmp(how, "vfork") == 0) {
		if (vfork() == 0) {
			request(1, 20000000, "/vfork", 1);
			_exit(0);
		}
	} else if (strcmp(how, "scribble") == 0) {
		scribble(strtoul(arguments[2], NULL, 10));
	} else {
		values();
	}
	printf("done\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
