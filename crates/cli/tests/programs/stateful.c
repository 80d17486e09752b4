/*
 * A program with state, which a state dump records: settings that it has had from its start.
 *
 *   stateful ticks SETTINGS        counts in events until its input ends; prints the last number
 *   stateful fork SETTINGS         the same, beside a child that does so, too
 *   stateful blocked               ends while its dump never returns
 *   stateful removed               removes dumps while they run, from outside and from inside
 *   stateful nested                its dump adds another one
 *   stateful caller                prints whether a dump ran in the thread that added it
 *   stateful single                does what only a process with one thread may
 *   stateful faulty                its dump raises a fault that the program handles
 *   stateful plugin LIBRARY TIMES  loads and unloads a library with a dump
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned settings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint calls, entered, left, hurry;

static unsigned own_id(void)
{
	return (unsigned)syscall(SYS_gettid);
}

static void check(int holds, const char *what)
{
	if (!holds) {
		printf("not so: %s\n", what);
		fflush(stdout);
		_exit(1);
	}
}

static void dump_settings(void *data)
{
	char value[64];
	(void)data;
	/* The program's own lock and heap, and the thread's own events. */
	pthread_mutex_lock(&lock);
	unsigned call = atomic_fetch_add(&calls, 1) + 1;
	char *copy = malloc(1000);
	for (unsigned i = 0; i < settings; i++) {
		snprintf(value, sizeof value, "value of %u", i);
		TOMPION_EVENT(stateful, setting, (u32, number, i), (str, value, value), (u32, call, call));
	}
	TOMPION_EVENT(stateful, dumped, (u32, process, (unsigned)getpid()), (u32, call, call));
	free(copy);
	pthread_mutex_unlock(&lock);
}

static int input_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 1) > 0;
}

static unsigned tick(void)
{
	unsigned number = 0;
	do {
		number++;
		TOMPION_EVENT(stateful, tick, (u32, number, number));
	} while (!input_ended());
	return number;
}

static int ticks(void)
{
	check(tompion_state_dump(dump_settings, NULL) == 0, "a dump is added");
	check(tompion_state_dump(dump_settings, NULL) == 0, "one that is known is no error");
	printf("ready\n");
	fflush(stdout);
	printf("%u\n", tick());
	return 0;
}

static int forks(void)
{
	check(tompion_state_dump(dump_settings, NULL) == 0, "a dump is added");
	for (int i = 0; i < 2000 && !atomic_load(&calls); i++)
		usleep(1000);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 2000 && atomic_load(&calls) < 2; i++)
			usleep(1000);
		check(atomic_load(&calls) == 2, "the child's dump was called");
		TOMPION_EVENT(stateful, child, (u32, process, (unsigned)getpid()));
		exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	check(status == 0, "the child ends well");
	check(atomic_load(&calls) == 1, "the parent's dump was called once");
	return 0;
}

static void wait_for(atomic_uint *word)
{
	for (int i = 0; i < 10000 && !atomic_load(word); i++)
		usleep(1000);
	check(atomic_load(word), "it happens in time");
}

static void dump_for_ever(void *data)
{
	(void)data;
	atomic_store(&entered, 1);
	for (;;)
		pause();
}

static int blocked(void)
{
	check(tompion_state_dump(dump_for_ever, NULL) == 0, "a dump is added");
	wait_for(&entered);
	TOMPION_EVENT(stateful, end, (u32, number, 1));
	return 0;
}

static void dump_slowly(void *data)
{
	(void)data;
	atomic_store(&entered, 1);
	while (!atomic_load(&hurry))
		usleep(1000);
	usleep(50 * 1000);
	atomic_store(&left, 1);
}

static void *hurry_later(void *unused)
{
	usleep(50 * 1000);
	atomic_store(&hurry, 1);
	return unused;
}

static void dump_and_leave(void *data)
{
	check(tompion_state_dump_remove(dump_and_leave, data) == 0, "a dump removes itself");
	TOMPION_EVENT(stateful, left, (u32, number, 1));
	atomic_store(&left, 2);
}

static int removed(void)
{
	pthread_t helper;
	check(tompion_state_dump_remove(dump_slowly, NULL) == -1, "what was not added is not known");
	check(tompion_state_dump(dump_slowly, NULL) == 0, "a dump is added");
	wait_for(&entered);
	pthread_create(&helper, NULL, hurry_later, NULL);
	check(tompion_state_dump_remove(dump_slowly, NULL) == 0, "a dump is removed");
	check(atomic_load(&left) == 1, "a removal waits");
	pthread_join(helper, NULL);
	atomic_store(&left, 0);
	check(tompion_state_dump(dump_and_leave, &settings) == 0, "a dump is added");
	wait_for(&left);
	check(tompion_state_dump_remove(dump_and_leave, &settings) == -1, "it is gone");
	return 0;
}

static void dump_second(void *data)
{
	TOMPION_EVENT(stateful, second, (u32, number, *(unsigned *)data));
	atomic_store(&left, 1);
}

static void dump_first(void *data)
{
	TOMPION_EVENT(stateful, first, (u32, number, 1));
	check(tompion_state_dump(dump_second, data) == 0, "a dump adds one");
}

static int nested(void)
{
	static unsigned number = 7;
	check(tompion_state_dump(dump_first, &number) == 0, "a dump is added");
	wait_for(&left);
	return 0;
}

static void dump_own_id(void *data)
{
	*(unsigned *)data = own_id();
	TOMPION_EVENT(stateful, dumped, (u32, process, (unsigned)getpid()), (u32, call, 1));
	atomic_store(&left, 1);
}

static int caller(void)
{
	static unsigned id;
	check(tompion_state_dump(dump_own_id, &id) == 0, "a dump is added");
	wait_for(&left);
	/* Events of the thread are its own again. */
	for (unsigned i = 0; i < 10; i++)
		TOMPION_EVENT(stateful, tick, (u32, number, i));
	printf("%s\n", id == own_id() ? "same" : "other");
	return 0;
}

static int threads(void)
{
	int count = 0;
	DIR *tasks = opendir("/proc/self/task");
	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count - 2;
}

static int single(void)
{
	check(tompion_state_dump(dump_settings, NULL) == 0, "a dump is added");
	wait_for(&calls);
	check(threads() == 3, "the library has two threads");
	check(unshare(CLONE_NEWUSER) == 0, "a process with one thread makes a user namespace");
	for (int i = 0; i < 2000 && threads() != 3; i++)
		usleep(1000);
	check(threads() == 3, "the threads are there again");
	TOMPION_EVENT(stateful, end, (u32, number, 1));
	return 0;
}

static void handle_fault(int signal)
{
	static const char words[] = "handled\n";
	(void)signal;
	if (write(1, words, sizeof words - 1) < 0)
		_exit(2);
	_exit(0);
}

static void dump_faultily(void *data)
{
	*(volatile int *)data = 1;
}

static int faulty(void)
{
	signal(SIGSEGV, handle_fault);
	TOMPION_EVENT(stateful, begin, (u32, number, 1));
	check(tompion_state_dump(dump_faultily, (void *)8) == 0, "a dump is added");
	wait_for(&left);
	return 1;
}

static int plugins(const char *path, int times)
{
	for (int i = 0; i < times; i++) {
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		check(library != NULL, "the library is loaded");
		if (i % 2)
			usleep(1000);
		check(dlclose(library) == 0, "the library is unloaded");
		check(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL, "it is gone");
	}
	return 0;
}

int main(int count, char **arguments)
{
	const char *how = count > 1 ? arguments[1] : "";
	settings = count > 2 ? (unsigned)atoi(arguments[2]) : 3;
	if (strcmp(how, "ticks") == 0)
		return ticks();
	if (strcmp(how, "fork") == 0)
		return forks();
	if (strcmp(how, "blocked") == 0)
		return blocked();
	if (strcmp(how, "removed") == 0)
		return removed();
	if (strcmp(how, "nested") == 0)
		return nested();
	if (strcmp(how, "caller") == 0)
		return caller();
	if (strcmp(how, "single") == 0)
		return single();
	if (strcmp(how, "faulty") == 0)
		return faulty();
	if (strcmp(how, "plugin") == 0 && count > 3)
		return plugins(arguments[2], atoi(arguments[3]));
	return 2;
}
