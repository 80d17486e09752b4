/*
 * Turning all writers to the other buffer: the selector is loaded inside the section.
 *
 *   here      in the code
 *   writer    ring/src/section/x86_64.rs, tompion_append_image (which buffer);
 *             ring/src/producer.rs, current_ring
 *   session   the store to the control page's selector, by the session or a BPF program; os,
 *             barrier_all_sections
 *
 * Buffers are counters here: what a record is made of is the business of the other models.
 *
 * Checked: each event is in one buffer; a section that begins after the switch writes to the new
 * buffer, so each CPU adds at most one record to the old one after it; after the barrier no writer
 * adds any.
 *
 * Variants that must fail:
 *   BROKEN_SELECTED_EARLY   the selector is loaded before the section
 *   BROKEN_NO_BARRIER       the session believes the old buffer to be still without the barrier
 *   BROKEN_NO_RESTART       sections that go on after a preemption
 */
#define CPUS 2
#define WRITERS 3
#define EVENTS 1 /* of each writer */
#define IDS (WRITERS * EVENTS)

#include "section.h"

typedef Buffer {
	byte written[CPUS]
};

Buffer buffer[2];
bool selector; /* which buffer is written to */
bool frozen;   /* the old buffer changes no more */
byte late[CPUS];
byte finished;

proctype writer(byte me)
{
	byte cpu, event, position;
	bool chosen;
	do
	:: event == EVENTS -> break
	:: event < EVENTS ->
append:
#ifdef BROKEN_SELECTED_EARLY
		chosen = selector;
#endif
		atomic {
			if
			:: cpu = 0
			:: cpu = 1
			fi;
			ENTER
		}
#ifndef BROKEN_SELECTED_EARLY
		STEP(chosen = selector, append);
#endif
		STEP(position = buffer[chosen].written[cpu], append);
		STEP(
			buffer[chosen].written[cpu] = position + 1;
			assert(!frozen || chosen == 1);
			if
			:: selector == 1 && chosen == 0 -> late[cpu]++; assert(late[cpu] <= 1)
			:: else
			fi;
			finished++;
			LEAVE, append);
		atomic { event++; cpu = 0; position = 0; chosen = 0 }
	od
}

proctype session()
{
	selector = 1;
#ifndef BROKEN_NO_BARRIER
	/* membarrier: every CPU has left the section that ran there, one way or the other. */
	atomic { owner[0] = NONE; owner[1] = NONE }
#endif
	frozen = true;
	finished == IDS;
	assert(buffer[0].written[0] + buffer[0].written[1] + buffer[1].written[0] + buffer[1].written[1] == IDS)
}

init {
	atomic {
		run writer(0);
		run writer(1);
		run writer(2);
		run session()
	}
}
