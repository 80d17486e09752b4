/*
 * What the models of restartable sections share. A section ends early, at any step, when its thread
 * is preempted, migrates or gets a signal (rseq(2)).
 *
 * `owner[cpu]` is the thread that has a section open on a CPU. Another thread that opens one there
 * has preempted it: the kernel lets the first one go on at its abort label only. Nothing else is
 * promised, so whatever a section has stored when it is abandoned stays stored.
 *
 * A thread that uses these has the variables `cpu` and `me`.
 */
#define NONE 255

byte owner[CPUS] = NONE;

/* Opens a section on a CPU; a writer that had one open there is abandoned. */
#define ENTER owner[cpu] = me

#define LEAVE owner[cpu] = NONE

/*
 * One instruction of a section: it is executed, or the section is abandoned because another thread
 * has run here meanwhile, or for a reason that the model doesn't know (a signal, a migration).
 */
#ifdef BROKEN_NO_RESTART
#define STEP(instruction, abort) atomic { instruction }
#else
#define STEP(instruction, abort)                                   \
	if                                                         \
	:: atomic { owner[cpu] == me -> instruction }              \
	:: atomic { owner[cpu] == me -> LEAVE; goto abort }        \
	:: atomic { owner[cpu] != me -> goto abort }               \
	fi
#endif
