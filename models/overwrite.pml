/*
 * The one-section append in overwrite mode, and the copy of a ring that goes on being written.
 *
 *   here     in the code
 *   writer   ring/src/section/x86_64.rs, tompion_append_image and tompion_section_put;
 *            ring/src/producer.rs, make_room
 *   reader   ring/src/reader.rs, RingReader::copy_history
 *
 * Threads lose sections at any instruction and may go on elsewhere; what they left behind the write
 * position stays. The reader copies all words of the last lap in any order, so it is enough to
 * follow one of them, whichever it is: it notes the position, copies the word later, and later
 * looks at the position again.
 *
 * Checked: a word that the rule lets through is what was committed there.
 *
 * Variants that must fail:
 *   BROKEN_NO_SECOND_LOOK   the position isn't read again after the copy
 *   BROKEN_NO_DIRT          only what later records cover is dropped, not what abandoned sections
 *                           may have left
 *   BROKEN_BOUNDARY         with the position exactly between two sub-buffers, the older one is
 *                           taken for dirty
 *   BROKEN_COMMIT_EARLY     the position is stored before the record
 */
#define CPUS 1
#define WRITERS 2
#ifndef EVENTS
#define EVENTS 2 /* of each writer */
#endif
#ifndef SUBBUF
#define SUBBUF 3 /* words: a header, and more */
#endif
#ifndef SUBBUFS
#define SUBBUFS 2
#endif
#define RING (SUBBUF * SUBBUFS)

/* Words of memory. */
#define ANY 0 /* behind padding: never read */
#define PADDING 1
#define HEADER(position) (2 + (position) / SUBBUF)
#define RECORD(id, k) (32 + (id) * 2 + k)

#include "section.h"

byte write;
byte data[RING];
byte truth[RING]; /* what was committed last at each place */

inline commit()
{
	truth[position % RING] = RECORD(id, 0);
	if
	:: size == 2 -> truth[(position + 1) % RING] = RECORD(id, 1)
	:: else
	fi;
	write = position + size
}

inline open()
{
	truth[position % RING] = (inside == 0 -> HEADER(position) : PADDING);
	if
	:: inside == 0 -> write = position + 1
	:: else ->
		k = position + 1;
		do
		:: k % SUBBUF != 0 -> truth[k % RING] = ANY; k++
		:: else -> break
		od;
		write = k;
		k = 0
	fi
}

proctype writer(byte me)
{
	byte cpu, event, id, size, position, inside, k;
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
		if
		:: goto next /* elsewhere */
		:: atomic { position = 0; ENTER }
		fi;
		STEP(position = write;
			if
			:: position % SUBBUF == 0 || position % SUBBUF + size > SUBBUF -> LEAVE; goto room
			:: else
			fi, append);
#ifdef BROKEN_COMMIT_EARLY
		STEP(commit(), append);
#endif
		STEP(data[position % RING] = RECORD(id, 0), append);
		if
		:: size == 2 -> STEP(data[(position + 1) % RING] = RECORD(id, 1), append)
		:: else
		fi;
#ifdef BROKEN_COMMIT_EARLY
		STEP(LEAVE, append);
#else
		STEP(commit(); LEAVE, append);
#endif
		goto next;

room:		atomic {
			position = write;
			inside = position % SUBBUF;
			if
			:: inside != 0 && inside + size <= SUBBUF -> goto append
			:: else
			fi
		}
		if
		:: ENTER
		:: goto append
		fi;
		STEP(if :: write != position -> LEAVE; goto append :: else fi, append);
		STEP(data[position % RING] = (inside == 0 -> HEADER(position) : PADDING), append);
		STEP(open(); LEAVE, append);
		goto append;

next:		atomic { event++; position = 0; inside = 0; size = 0; id = 0 }
	od
}

/* From where on the copy is intact, one ring's size ahead so that it is never negative. */
inline rule(position)
{
#if defined(BROKEN_NO_DIRT)
	intact = position
#elif defined(BROKEN_BOUNDARY)
	intact = ((position + SUBBUF - 1) / SUBBUF) * SUBBUF
#else
	intact = (position / SUBBUF + 1) * SUBBUF
#endif
}

proctype reader()
{
	byte before, place, wanted, word, intact;
end:	do
	::
		atomic { write > 0 ->
			before = write;
			/* Any word of the last lap. */
			place = (before > RING -> before - RING : 0);
			do
			:: place < before - 1 -> place++
			:: break
			od;
			wanted = truth[place % RING]
		}
		word = data[place % RING];
		atomic {
#ifdef BROKEN_NO_SECOND_LOOK
			rule(before);
#else
			rule(write);
#endif
			assert(place + RING < intact || word == wanted || wanted == ANY);
			before = 0; place = 0; wanted = 0; word = 0; intact = 0
		}
	od
}

init {
	atomic {
		run writer(0);
		run writer(1);
		run reader()
	}
}
