/*
 * Counts the instructions that a program executes between two breakpoints, by stepping through
 * them.
 *
 *   steps PROGRAM ARGUMENTS…
 *
 * The program marks what it wants counted with two `int3`, the first with a number in rax (see
 * counted.c). For each pair a JSON line is printed.
 *
 * A restartable section cannot be stepped through: every stop is a preemption, and the kernel
 * restarts the section, for ever. So, after each step, the section is disarmed: `rseq_cs` in the
 * thread's rseq area is set to zero, as if there were no section. None else writes to the ring of
 * this thread's CPU meanwhile, because the program is pinned, has one thread that records, and gets
 * no signals.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "breakpoints and registers are known for x86-64 only"
#endif

/* linux/ptrace.h and sys/ptrace.h do not go together everywhere. */
#define GET_RSEQ_CONFIGURATION 0x420f
#define RSEQ_CS_OFFSET 8
#define MAX_STEPS 1000000

struct rseq_configuration {
	uint64_t area;
	uint32_t size;
	uint32_t signature;
	uint32_t flags;
	uint32_t pad;
};

static pid_t child;

static void die(const char *what)
{
	perror(what);
	if (child > 0)
		kill(child, SIGKILL);
	exit(1);
}

/* Waits for a stop. Returns its signal, or 0 when the program has ended. */
static int wait_for_stop(int *exit_code)
{
	int status;
	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	if (WIFSTOPPED(status))
		return WSTOPSIG(status);
	*exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return 0;
}

/* Whether the program stopped at one of its own breakpoints, not after a step. */
static int at_breakpoint(void)
{
	siginfo_t info;
	if (ptrace(PTRACE_GETSIGINFO, child, NULL, &info) != 0)
		die("PTRACE_GETSIGINFO");
	return info.si_signo == SIGTRAP && info.si_code == SI_KERNEL;
}

static uint64_t rseq_area(void)
{
	struct rseq_configuration found = { 0 };
	long size = ptrace(GET_RSEQ_CONFIGURATION, child, sizeof found, &found);
	return size < 0 ? 0 : found.area;
}

static void disarm(uint64_t area)
{
	if (area == 0)
		return;
	errno = 0;
	void *place = (void *)(uintptr_t)(area + RSEQ_CS_OFFSET);
	long armed = ptrace(PTRACE_PEEKDATA, child, place, NULL);
	if (armed == -1 && errno != 0)
		die("PTRACE_PEEKDATA");
	if (armed != 0 && ptrace(PTRACE_POKEDATA, child, place, NULL) != 0)
		die("PTRACE_POKEDATA");
}

/* Steps to the next breakpoint and returns the number of instructions before it. */
static uint64_t count_steps(void)
{
	uint64_t area = rseq_area();
	int code = 0;
	for (uint64_t steps = 0; steps < MAX_STEPS; steps++) {
		disarm(area);
		if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0)
			die("PTRACE_SINGLESTEP");
		int signal = wait_for_stop(&code);
		if (signal != SIGTRAP) {
			fprintf(stderr, "steps: the program stopped with signal %d\n", signal);
			die("steps");
		}
		if (at_breakpoint())
			return steps;
	}
	fprintf(stderr, "steps: no second breakpoint within %d instructions\n", MAX_STEPS);
	kill(child, SIGKILL);
	exit(1);
}

static uint64_t number_of_pair(void)
{
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0)
		die("PTRACE_GETREGS");
	return registers.rax;
}

int main(int count, char **arguments)
{
	if (count < 2) {
		fprintf(stderr, "usage: %s PROGRAM ARGUMENTS...\n", arguments[0]);
		return 2;
	}
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(77);
		execvp(arguments[1], arguments + 1);
		perror(arguments[1]);
		_exit(127);
	}
	int code = 0, signal = wait_for_stop(&code); /* the stop at exec */
	while (signal != 0) {
		int passed_on = signal == SIGTRAP ? 0 : signal;
		if (signal == SIGTRAP && at_breakpoint()) {
			uint64_t number = number_of_pair();
			uint64_t steps = count_steps();
			printf("{\"number\":%llu,\"instructions\":%llu}\n", (unsigned long long)number,
			       (unsigned long long)steps);
			fflush(stdout);
		}
		if (ptrace(PTRACE_CONT, child, NULL, (void *)(intptr_t)passed_on) != 0)
			die("PTRACE_CONT");
		signal = wait_for_stop(&code);
	}
	return code;
}
