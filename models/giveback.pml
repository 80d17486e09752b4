/*
 * Pages of a ring in discard mode are given back while writers may begin to write again.
 *
 *   here            in the code
 *   writer, room    ring/src/producer.rs, Recording::make_room
 *   writer, put     ring/src/section/x86_64.rs, tompion_section_put
 *   reader, take    ring/src/reader.rs, RingReader::consume
 *   reader, empty   ring/src/reader.rs, RingReader::while_withdrawn; ring/src/idle_pages.rs
 *
 * A sub-buffer is one word here, with one record: so each append opens one, and a writer that has
 * looked at the room may be preempted for as long as it likes before it does. What is behind the
 * position in an open sub-buffer is never emptied, and not in this model. Memory is sequentially
 * consistent: that the fences make it so is for loom (ring/src/loom_tests.rs, `emptying`).
 *
 * Checked: each committed record is found whole, once, in order; each event is there or lost; the
 * reader gives back no more room than it has taken.
 *
 * Variants that must fail:
 *   BROKEN_NO_WITHDRAWAL   pages are emptied while writers may open all sub-buffers
 *   BROKEN_NO_LOOK         the position is not looked at behind the withdrawal
 *   BROKEN_NEAR            the sub-buffer that is opened next is emptied, too
 *   BROKEN_RETURNED_EARLY  room is given to writers before it was emptied
 */
#define CPUS 1
#define WRITERS 2
#define EVENTS 2 /* of each writer */
#define SUBBUFS 3
#define RECORD(position) (1 + (position))

#include "section.h"

/* The second lap: the first has nothing that could be emptied. */
byte write = SUBBUFS;
byte consumed = SUBBUFS;
byte data[SUBBUFS];

/* What the model knows, and no program. */
byte finished; /* events whose append has returned */
byte lost;
byte found;

proctype writer(byte me)
{
	byte cpu = 0, event = 0, position, room;

	do
	:: event == EVENTS -> break
	:: else ->
again:
		position = write;
		room = consumed;
		if
		:: position + 1 > room + SUBBUFS ->
			/* The section that counts finds the ring changed, or full. */
			atomic {
				if
				:: position == write -> lost++; finished++; event++
				:: else -> skip
				fi
			}
		:: else ->
			ENTER;
			STEP(if :: write == position -> skip :: else -> LEAVE; goto again fi, again);
			STEP(data[position % SUBBUFS] = RECORD(position), again);
			STEP(write = position + 1; LEAVE; finished++; event++, again)
		fi
	od
}

proctype reader()
{
	byte read = SUBBUFS, emptied = 0, last;

	do
	:: finished == WRITERS * EVENTS && read == write -> break
	:: atomic {
		read < write ->
		assert(data[read % SUBBUFS] == RECORD(read));
		read++;
		found++
	   };
	   consumed = read
	:: emptied < 2 ->
		emptied++;
#ifndef BROKEN_NO_WITHDRAWAL
		/* So that the sub-buffer behind the next one is not opened. */
		consumed = read + 1 - SUBBUFS;
#endif
		if
#ifdef BROKEN_NO_LOOK
		:: true ->
#else
		:: write == read ->
#endif
#ifdef BROKEN_RETURNED_EARLY
			consumed = read;
#endif
#ifdef BROKEN_NEAR
			data[read % SUBBUFS] = 0;
#endif
			data[(read + 1) % SUBBUFS] = 0;
			data[(read + 2) % SUBBUFS] = 0
#ifndef BROKEN_NO_LOOK
		:: else -> skip
#endif
		fi;
		consumed = read
	od;
	assert(consumed == write);
	assert(found + lost == WRITERS * EVENTS)
}

init {
	atomic {
		run writer(0);
		run writer(1);
		run reader()
	}
}
