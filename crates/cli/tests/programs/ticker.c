/*
 * Counts in events until its standard input ends, one of each kind a millisecond; then, if asked
 * to, has a child count on. Prints the last number.
 *
 *   ticker [fork | exec | worker | heir]
 *
 * As a worker it counts in a child, which runs before anything is said. An heir is a child that
 * does nothing but keep the descriptors, of which the agent does not know.
 */
#include <tompion/tompion.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int input_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 1) > 0;
}

int main(int count, char **arguments)
{
	const char *how = count > 1 ? arguments[1] : "";
	unsigned number = 0;
	if (strcmp(how, "child") == 0) {
		TOMPION_EVENT(ticker, child, (u32, number, number));
		usleep(100 * 1000);
		TOMPION_EVENT(ticker, child, (u32, number, number + 1));
		return 0;
	}
	if (strcmp(how, "worker") == 0) {
		pid_t worker = fork();
		if (worker != 0) {
			waitpid(worker, NULL, 0);
			return 0;
		}
		how = "";
	}
	printf("ready\n");
	fflush(stdout);
	do {
		number++;
		TOMPION_EVENT(ticker, tick, (u32, number, number));
		TOMPION_EVENT(ticker, tock, (u32, number, number));
	} while (!input_ended());
	if (*how) {
		if (strcmp(how, "heir") == 0) {
			pid_t heir = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
			if (heir == 0)
				for (;;)
					pause();
			printf("%d\n", heir);
			return 0;
		}
		pid_t child = fork();
		if (child == 0) {
			TOMPION_EVENT(ticker, child, (u32, number, number));
			if (strcmp(how, "exec") == 0)
				execl(arguments[0], arguments[0], "child", (char *)0);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	printf("%u\n", number);
	return 0;
}
