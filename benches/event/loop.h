/* The bench loop: what a variant (plain.c, tompion.c, lttng.c) gives to loop.c. */
#ifndef BENCH_LOOP_H
#define BENCH_LOOP_H

#include <stdint.h>

/* One thing to measure, in two surroundings. */
struct body {
	const char *name;
	void (*tight)(uint64_t count); /* nothing else in the loop */
	void (*work)(uint64_t count);  /* amid some 50 dependent multiplications */
};

/* The variant's bodies, up to one without a name. */
extern const struct body bodies[];
/* Called on each measured thread before its first body. */
void prepare_thread(void);

/* The chain of work, one for each thread, so that nothing is shared. */
extern __thread uint64_t work_state __attribute__((tls_model("initial-exec")));

#define WORK_STEPS 50

static inline __attribute__((always_inline)) uint64_t work_once(uint64_t state)
{
	for (int step = 0; step < WORK_STEPS; step++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		__asm__ volatile("" : "+r"(state));
	}
	return state;
}

/* Defines tight_NAME and work_NAME. STATEMENT sees `i`, the number of the round, and may add to
 * `sink`. */
#define BODY(name, statement)                                                                          \
	static __attribute__((noinline)) void tight_##name(uint64_t count)                             \
	{                                                                                              \
		uint64_t sink = 0;                                                                     \
		for (uint64_t i = 0; i < count; i++) {                                                 \
			statement;                                                                     \
		}                                                                                      \
		__asm__ volatile("" : : "r"(sink));                                                    \
	}                                                                                              \
	static __attribute__((noinline)) void work_##name(uint64_t count)                              \
	{                                                                                              \
		uint64_t sink = 0, state = work_state;                                                 \
		for (uint64_t i = 0; i < count; i++) {                                                 \
			state = work_once(state);                                                      \
			statement;                                                                     \
		}                                                                                      \
		work_state = state;                                                                    \
		__asm__ volatile("" : : "r"(sink));                                                    \
	}

#define ENTRY(name) { #name, tight_##name, work_##name }

#endif
