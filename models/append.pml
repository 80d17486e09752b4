/*
 * The one-section append in discard mode, with its reader, killed at any step.
 *
 *   here             in the code
 *   writer, append   ring/src/section/x86_64.rs, tompion_append_image
 *   writer, room     ring/src/producer.rs, Recording::make_room
 *   writer, put      ring/src/section/x86_64.rs, tompion_section_put
 *   reader           ring/src/reader.rs, RingReader::take; ring/src/records.rs, Records::next
 *
 * Threads change their CPU between any two sections, and lose sections at any instruction. One ring
 * is looked at, and to whatever other CPU a thread has gone it is lost to the model; what was left
 * by it stays. With -DCPUS=2 there are two rings, for the ways from one to the other. A signal
 * handler that records is one more thread to the ring. Memory is sequentially consistent here: on
 * x86-64 stores become visible in program order, and a thread's stores are seen by the next one on
 * its CPU.
 *
 * Checked: what the reader finds below the write position is whole and was committed; each
 * committed record is found once, nothing else is; the number of events is that of the records;
 * each event is there or is counted as lost; times never go backwards within a ring (with -DTIME).
 * The audit is what a reader finds when all threads are killed right now; it changes nothing, so it
 * happens in every state.
 *
 * Variants that must fail:
 *   BROKEN_NO_RESTART        sections that go on after a preemption
 *   BROKEN_COMMIT_EARLY      the position is stored before the record
 *   BROKEN_COUNT_APART       position and count in two stores
 *   BROKEN_TIME_OUTSIDE      the clock is read before the section (with -DTIME)
 *   BROKEN_PUT_UNCHECKED     a sub-buffer is opened without looking whether it is still to be
 *                            opened
 *   BROKEN_NOT_FULL          what the reader has not taken is overwritten
 *   BROKEN_GIVEN_BACK_EARLY  the reader gives room back before it has copied
 */
#ifndef CPUS
#define CPUS 1
#endif
#define WRITERS 2
#ifndef EVENTS
#define EVENTS 2 /* of each writer */
#endif
#define SUBBUF 3 /* words: a header, and two more */
#define SUBBUFS 2
#define RING (SUBBUF * SUBBUFS)
#define IDS (WRITERS * EVENTS)

/* Words of memory. */
#define PADDING 1
#define HEADER(position) (2 + (position) / SUBBUF)
#define FIRST 32
#define RECORD(id, size, k) (FIRST + (id) * 4 + (k == 0 -> size : 3))

#include "section.h"

typedef Ring {
	byte write;
	byte events;
	byte consumed;
	byte data[RING]
};

Ring ring[CPUS];

/* What the model knows, and no program. */
byte committed; /* bits of ids */
byte found;     /* bits of ids that the reader has taken */
byte finished;  /* events whose append has returned */
byte lost;
byte elsewhere; /* appended to a ring that the model doesn't have */

#ifdef TIME
byte later[WRITERS]; /* who has read the clock since this thread did */
byte stale[CPUS];    /* whose reading is older than that of the ring's last record */

inline read_clock()
{
	later[1 - me] = 1;
	later[me] = 0;
	stale[0] = stale[0] & (2 - me);
	stale[CPUS - 1] = stale[CPUS - 1] & (2 - me)
}

/* This record has its time now; a reading that is older must not follow it. */
inline note_time()
{
	assert(!((stale[cpu] >> me) & 1));
	stale[cpu] = stale[cpu] | (later[1 - me] << (1 - me))
}
#else
#define read_clock() skip
#define note_time() skip
#endif

inline note_commit()
{
	assert(!((committed >> id) & 1));
	committed = committed | (1 << id);
	note_time()
}

inline choose_cpu()
{
#if CPUS == 2
	if
	:: cpu = 0
	:: cpu = 1
	fi
#else
	cpu = 0
#endif
}

proctype writer(byte me)
{
	byte cpu, event, id, size, position, inside, start;
	do
	:: event == EVENTS -> break
	:: event < EVENTS ->
		atomic {
			id = me * EVENTS + event;
			if
			:: size = 1
			:: size = 2
			fi
		}
append:
#if CPUS == 1
		if
		:: atomic { elsewhere++; goto next }
		:: skip
		fi;
#endif
#ifdef BROKEN_TIME_OUTSIDE
		atomic { read_clock() }
#endif
		atomic {
			position = 0;
			choose_cpu();
			ENTER
		}
		STEP(position = ring[cpu].write;
			if
			:: position % SUBBUF == 0 || position % SUBBUF + size > SUBBUF -> LEAVE; goto room
			:: else
			fi, append);
#ifdef BROKEN_COMMIT_EARLY
		STEP(ring[cpu].write = position + size; ring[cpu].events++; note_commit(), append);
#endif
		STEP(ring[cpu].data[position % RING] = RECORD(id, size, 0), append);
		if
		:: size == 2 -> STEP(ring[cpu].data[(position + 1) % RING] = RECORD(id, size, 1), append)
		:: else
		fi;
#ifndef BROKEN_TIME_OUTSIDE
#ifdef TIME
		STEP(read_clock(), append);
#endif
#endif
#if defined(BROKEN_COUNT_APART)
		STEP(ring[cpu].events++, append);
		STEP(ring[cpu].write = position + size; note_commit(); LEAVE, append);
#elif defined(BROKEN_COMMIT_EARLY)
		STEP(LEAVE, append);
#else
		STEP(ring[cpu].write = position + size; ring[cpu].events++; note_commit(); LEAVE, append);
#endif
		goto next;

room:		/* No section: the thread may be moved at any time, and goes on with what it saw. */
		atomic {
			choose_cpu();
			position = ring[cpu].write;
			inside = position % SUBBUF;
			start = (inside == 0 -> position : position + SUBBUF - inside);
			if
			:: inside != 0 && inside + size <= SUBBUF -> goto append
			:: else
			fi
		}
#ifndef BROKEN_NOT_FULL
		if
		:: atomic { start + SUBBUF - ring[cpu].consumed > RING -> lost++; goto next }
		:: else
		fi;
#endif
		if
		:: ENTER
		:: goto append /* it runs elsewhere by now: the section finds that out */
		fi;
#ifndef BROKEN_PUT_UNCHECKED
		STEP(if :: ring[cpu].write != position -> LEAVE; goto append :: else fi, append);
#endif
		STEP(ring[cpu].data[position % RING] = (inside == 0 -> HEADER(position) : PADDING), append);
		STEP(ring[cpu].write = (inside == 0 -> position + 1 : start); LEAVE, append);
		goto append;

next:		atomic { event++; finished++; position = 0; inside = 0; start = 0; size = 0; cpu = 0; id = 0 }
	od
}

/*
 * Looks at the word at position `at` of what was copied from ring `cpu`: `left` words of record
 * `id` are still to come. `seen` gets the records that begin.
 */
inline look(seen)
{
	word = ring[cpu].data[at % RING];
	if
	:: left > 0 -> assert(word == RECORD(id, 0, 1)); left--; at++
	:: left == 0 && at % SUBBUF == 0 -> assert(word == HEADER(at)); at++
	:: left == 0 && at % SUBBUF != 0 && word == PADDING -> at = at + SUBBUF - at % SUBBUF
	:: left == 0 && at % SUBBUF != 0 && word != PADDING ->
		assert(word >= FIRST);
		id = (word - FIRST) / 4;
		left = (word - FIRST) % 4 - 1;
		assert(left <= 1);
		assert(!((seen >> id) & 1));
		seen = seen | (1 << id);
		number++;
		at++
	fi;
	word = 0
}

/*
 * Takes what one ring has, while the writers go on. All words are looked at in the last moment of
 * the copy: whatever was changed during it is still changed then, because no two records have a
 * word in common.
 */
inline take()
{
	atomic {
		if
		:: ring[0].write != ring[0].consumed -> cpu = 0
		:: ring[CPUS - 1].write != ring[CPUS - 1].consumed -> cpu = CPUS - 1
		fi;
		claimed = ring[cpu].write;
		at = ring[cpu].consumed;
		assert(claimed > at && claimed - at <= RING)
	}
#ifdef BROKEN_GIVEN_BACK_EARLY
	ring[cpu].consumed = claimed;
#endif
	atomic {
		do
		:: at < claimed -> look(found)
		:: else -> break
		od;
		assert(left == 0);
		ring[cpu].consumed = claimed;
		claimed = 0;
		at = 0;
		id = 0;
		number = 0
	}
}

/* What would be found if no thread ran any more. */
inline audit()
{
	d_step {
		seen = found;
		total = 0;
		cpu = 0;
		do
		:: cpu < CPUS ->
			at = ring[cpu].consumed;
			do
			:: at < ring[cpu].write -> look(seen)
			:: else -> break
			od;
			assert(at == ring[cpu].write && left == 0);
			total = total + ring[cpu].events;
			cpu++
		:: else -> break
		od;
		assert(seen == committed);
		id = 0;
		number = 0;
		do
		:: id < IDS -> number = number + ((committed >> id) & 1); id++
		:: else -> break
		od;
		assert(number == total);
		assert(number + lost + elsewhere >= finished);
		assert(finished < IDS || number + lost + elsewhere == IDS);
		cpu = 0; at = 0; id = 0; number = 0; total = 0; seen = 0
	}
}

proctype reader()
{
	byte cpu, claimed, at, word, id, left, number, total, seen;
	do
	:: take()
	:: audit()
	od
}

init {
	atomic {
		run writer(0);
		run writer(1);
		run reader()
	}
}
