/*
 * Three threads with names of their own, which count under a context of their own; before and
 * after, the main thread. With `snapshot` it asks for one in the middle, from a signal handler.
 */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static __thread int64_t request = -1;
static pthread_barrier_t together;

static int64_t get_request(void)
{
	return request;
}

static size_t get_user(char *buffer, size_t size)
{
	int length = snprintf(buffer, size, "user-%d", (int)request / 100);
	return (size_t)length < size ? (size_t)length : size;
}

static void *work(void *argument)
{
	int worker = (int)(intptr_t)argument;
	char name[16];
	snprintf(name, sizeof name, "worker-%d", worker);
	pthread_setname_np(pthread_self(), name);
	pthread_barrier_wait(&together);
	usleep(80 * 1000); /* long enough for the session to see the names */
	for (int i = 0; i < 10; i++) {
		request = worker * 100 + i;
		TOMPION_EVENT(chooser, step, (i32, i, i), (str, parity, i % 2 ? "odd" : "even"),
			      (f64, half, i / 2.0), (array, three, u16, ((uint16_t[]){ 1, 2, (uint16_t)i }), 3));
	}
	pthread_barrier_wait(&together);
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
	TOMPION_EVENT(chooser, asked, (i32, answer, tompion_snapshot()));
}

int main(int count, char **arguments)
{
	int asks = count > 1 && strcmp(arguments[1], "snapshot") == 0;
	TOMPION_EVENT(chooser, begin, (i32, i, 0));
	int results[3] = { tompion_context_i64("net:request", get_request),
			   tompion_context_text("net:user", get_user),
			   tompion_context_i64("no name", get_request) };
	pthread_t threads[3];
	pthread_barrier_init(&together, NULL, 3);
	for (intptr_t worker = 0; worker < 3; worker++)
		pthread_create(&threads[worker], NULL, work, (void *)worker);
	for (int worker = 0; worker < 3; worker++)
		pthread_join(threads[worker], NULL);
	TOMPION_EVENT(chooser, end, (i32, first, results[0]), (i32, second, results[1]), (i32, third, results[2]));
	if (asks) {
		signal(SIGUSR2, on_signal);
		raise(SIGUSR2);
		usleep(300 * 1000);
		TOMPION_EVENT(chooser, late, (i32, i, 1));
	}
	return 0;
}
