/*
 * The fallback: how programs without restartable sequences append, killed at any step. Reserve and
 * commit as in reserve.pml, and a commit word in front of each record, by which the reader goes,
 * and recovery.
 *
 *   here             in the code
 *   writer, append   ring/src/reserve.rs, append: loads the position, reads the clock, reserves by
 *                    compare-and-swap, fills, stores the commit word, adds to the sub-buffer's
 *                    commit counter
 *   reader, walk     ring/src/reader.rs, take: goes along the commit words in shared memory
 *   reader, look     ring/src/records.rs, Records::next, on the private copy
 *   history          ring/src/reader.rs, copy_history
 *   audit            what a recovery finds that skips unfinished records
 *
 * Writers interleave at will: there is no order among threads without restartable sections. A
 * writer that finds no room in a sub-buffer reserves its rest, the next one's header, and the
 * record, in one step. Sub-buffers of 4 words: a header, and records of 2 or 3.
 *
 * Checked: what the reader takes is whole, each record once; after a kill in any state recovery
 * finds each committed record that wasn't taken, and nothing else; each event is there, unfinished,
 * or counted as lost; an event is refused because of an unfinished one only if there is one; when
 * no writer runs, everything can be read; times never go backwards in a ring (with -DTIME).
 *
 * Variants that must fail:
 *   BROKEN_PLAIN_RESERVE     the position is stored without comparing
 *   BROKEN_STAMP_EARLY       the commit word is stored before the fields
 *   BROKEN_STAMP_LAPS        commit words are the same in each lap
 *   BROKEN_NOT_FULL          what the reader has not taken is overwritten
 *   BROKEN_GIVEN_BACK_EARLY  the reader gives room back before it has copied
 *   BROKEN_SKIPPED           the reader passes over what is unfinished, though its writer lives
 *   BROKEN_LAP               with -DOVERWRITE, sub-buffers are entered whatever their commit
 *                            counter says
 *   BROKEN_STALE             with -DOVERWRITE, an event is refused without another look at the
 *                            position
 *   BROKEN_REST_UNCOUNTED    with -DOVERWRITE, what is left of a sub-buffer isn't committed by the
 *                            writer that leaves it
 *   BROKEN_NO_SECOND_LOOK    with -DOVERWRITE, a copy of the history is believed without another
 *                            look at the position
 *   BROKEN_TIME_OUTSIDE      with -DTIME, the clock is read before the position
 */
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef EVENTS
#define EVENTS 1 /* of each writer */
#endif
#define SUBBUF 4
#define SUBBUFS 2
#define RING (SUBBUF * SUBBUFS)
#define IDS (WRITERS * EVENTS)

/* Words of memory. */
#define HEAD(id, size) (4 + (id) * 4 + (size))
#define BODY(id) (4 + (id) * 4)
#ifdef BROKEN_STAMP_LAPS
#define STAMP(position) (100 + (position) % RING)
#else
#define STAMP(position) (100 + (position))
#endif
#define PADDING(position) (200 + (position))

byte write;
byte consumed;
byte counter[SUBBUFS];
byte data[RING];

/* What the model knows, and no program. */
byte committed; /* bits of ids */
byte found;     /* bits of ids that the reader has taken */
byte begun;     /* events reserved, and not yet committed altogether */
byte lost;
byte finished;
byte taken;     /* up to where the reader has read */
byte where[IDS];

#ifdef TIME
byte later[WRITERS]; /* bits of who has read the clock since this writer did */
byte stale;          /* whose reading is older than that of the last record that was reserved */
inline read_clock()
{
	k = 0;
	do
	:: k < WRITERS -> later[k] = later[k] | (1 << me); k++
	:: else -> break
	od;
	later[me] = 0;
	stale = stale & (255 - (1 << me));
	k = 0
}
inline note_time()
{
	assert(!((stale >> me) & 1));
	k = 0;
	do
	:: k < WRITERS -> stale = stale | (((later[k] >> me) & 1) << k); k++
	:: else -> break
	od;
	k = 0
}
#else
#define read_clock() skip
#define note_time() skip
#endif

proctype writer(byte me)
{
	byte event, id, size, old, start, place, k;
	bit opens, busy;
	do
	:: event == EVENTS -> break
	:: event < EVENTS ->
		atomic {
			id = me * EVENTS + event;
			if
			:: size = 2
			:: size = 3
			fi
		}
again:
#ifdef BROKEN_TIME_OUTSIDE
		atomic { read_clock() }
#endif
		atomic {
			old = write;
			opens = (old % SUBBUF == 0 || old % SUBBUF + size > SUBBUF);
			start = (old % SUBBUF == 0 -> old : (old / SUBBUF + 1) * SUBBUF);
			place = (opens -> start + 1 : old)
		}
		if
#ifdef OVERWRITE
#ifndef BROKEN_LAP
		:: atomic { opens && counter[(start / SUBBUF) % SUBBUFS] != (start / RING) * SUBBUF -> busy = (begun > 0) };
#ifndef BROKEN_STALE
			/* Or has it been entered meanwhile? */
			if
			:: atomic { write != old -> goto again }
			:: atomic { else -> assert(busy); lost++; goto next }
			fi
#else
			atomic { assert(busy); lost++; goto next }
#endif
#endif
#else
#ifndef BROKEN_NOT_FULL
		:: atomic { opens && start + SUBBUF - consumed > RING -> lost++; goto next }
#endif
#endif
		:: atomic { else -> skip }
		fi;
#if defined(TIME) && !defined(BROKEN_TIME_OUTSIDE)
		atomic { read_clock() }
#endif
#ifdef BROKEN_PLAIN_RESERVE
		atomic { write = place + size; begun++; where[id] = place; note_time() }
#else
		atomic {
			if
			:: write == old -> write = place + size; begun++; where[id] = place; note_time()
			:: else -> goto again
			fi
		}
#endif
		if
		:: opens ->
			if
			:: start != old ->
				data[old % RING] = PADDING(old);
#ifndef BROKEN_REST_UNCOUNTED
				counter[(old / SUBBUF) % SUBBUFS] = counter[(old / SUBBUF) % SUBBUFS] + start - old
#endif
			:: else
			fi;
			data[start % RING] = STAMP(start);
			counter[(start / SUBBUF) % SUBBUFS] = counter[(start / SUBBUF) % SUBBUFS] + 1
		:: else
		fi;
#ifdef BROKEN_STAMP_EARLY
		atomic { data[place % RING] = STAMP(place); committed = committed | (1 << id) };
#endif
		data[(place + 1) % RING] = HEAD(id, size);
		if
		:: size == 3 -> data[(place + 2) % RING] = BODY(id)
		:: else
		fi;
#ifndef BROKEN_STAMP_EARLY
		atomic { data[place % RING] = STAMP(place); committed = committed | (1 << id) };
#endif
		atomic { counter[(place / SUBBUF) % SUBBUFS] = counter[(place / SUBBUF) % SUBBUFS] + size; begun-- };
next:		atomic { event++; finished++; id = 0; size = 0; old = 0; start = 0; place = 0; opens = 0; busy = 0 }
	od
}

/* Goes on from `at` by what its word says: `word` is 0 where a record is unfinished, else `at`
 * is behind it. */
inline pass()
{
	word = data[at % RING];
	if
	:: word == PADDING(at) -> at = (at / SUBBUF + 1) * SUBBUF
	:: word == STAMP(at) && at % SUBBUF == 0 -> at++
	:: word == STAMP(at) && at % SUBBUF != 0 ->
		word = data[(at + 1) % RING];
		assert(word > BODY(0));
		id = (word - BODY(0)) / 4;
		size = (word - BODY(0)) % 4;
		assert(id < IDS && (size == 2 || size == 3));
		assert(size == 2 || data[(at + 2) % RING] == BODY(id));
		assert((committed >> id) & 1);
		assert(where[id] == at);
		assert(!((seen >> id) & 1));
		seen = seen | (1 << id);
		at = at + size
	:: else -> word = 0
	fi
}

/* Position at which the part of the ring begins that is not overwritten, given a write position. */
#ifdef OVERWRITE
#define INTACT(position) ((position) / SUBBUF + 1 > SUBBUFS -> ((position) / SUBBUF + 1 - SUBBUFS) * SUBBUF : 0)
#else
#define INTACT(position) 0
#endif

/* What would be found if no thread ran any more. */
inline audit()
{
	d_step {
		seen = found;
		at = (INTACT(write) > taken -> INTACT(write) : taken);
		upto = at;
		do
		:: at < write ->
			pass();
			if
			:: word == 0 -> at++
			:: else
			fi
		:: else -> break
		od;
		id = 0;
		do
		:: id < IDS ->
			assert(!((committed >> id) & 1) || where[id] < upto || ((seen >> id) & 1));
			id++
		:: else -> break
		od;
		assert(finished < IDS || begun == 0);
		at = 0; upto = 0; id = 0; size = 0; word = 0; seen = 0
	}
}

#ifndef OVERWRITE
proctype reader()
{
	byte at, upto, claimed, word, id, size, seen;
	do
	::
		atomic { taken < write -> claimed = write; at = taken }
		do
		:: atomic { at < claimed ->
				seen = found;
				word = data[at % RING];
				if
				:: word == PADDING(at) -> at = (at / SUBBUF + 1) * SUBBUF
				:: word == STAMP(at) && at % SUBBUF == 0 -> at++
				:: word == STAMP(at) && at % SUBBUF != 0 ->
					at = at + (data[(at + 1) % RING] - BODY(0)) % 4
				:: else ->
					/* When all writers have ended, everything can be read. */
					assert(finished < IDS);
#ifdef BROKEN_SKIPPED
					at++
#else
					break
#endif
				fi
			}
		:: atomic { at >= claimed -> break }
		od;
#ifdef BROKEN_GIVEN_BACK_EARLY
		consumed = at;
#endif
		atomic {
			upto = at;
			at = taken;
			seen = found;
			do
			:: at < upto ->
				pass();
#ifdef BROKEN_SKIPPED
				if
				:: word == 0 -> at++
				:: else
				fi
#else
				assert(word != 0)
#endif
			:: else -> break
			od;
			assert(at == upto);
			found = seen;
			taken = upto;
			consumed = (taken / SUBBUF) * SUBBUF;
			at = 0; upto = 0; claimed = 0; word = 0; id = 0; size = 0; seen = 0
		}
	:: audit()
	:: atomic { finished == IDS && taken == write -> assert(found == committed); break }
	od
}
#else
/* Follows one record of the history, whichever it is. */
proctype reader()
{
	byte at, upto, claimed, word, id, size, seen;
	do
	::
		atomic { write > 0 ->
			claimed = write;
			at = (claimed > RING -> ((claimed - RING + SUBBUF - 1) / SUBBUF) * SUBBUF : 0)
		}
		do
		:: atomic { at < claimed ->
				word = data[at % RING];
				if
				:: word == PADDING(at) -> at = (at / SUBBUF + 1) * SUBBUF
				:: word == STAMP(at) && at % SUBBUF != 0 -> break
				:: else -> at++
				fi
			}
		/* Or one of those behind it. */
		:: atomic { at < claimed -> at++ }
		:: atomic { at >= claimed -> at = claimed; break }
		od;
		atomic {
			if
#ifdef BROKEN_NO_SECOND_LOOK
			:: at < claimed && at >= INTACT(claimed) && at % SUBBUF != 0 ->
#else
			:: at < claimed && at >= INTACT(write) && at % SUBBUF != 0 ->
#endif
				word = data[at % RING];
				if
				:: word == STAMP(at) -> seen = 0; pass()
				:: else
				fi
			:: else
			fi;
			at = 0; claimed = 0; word = 0; id = 0; size = 0; seen = 0
		}
	:: audit()
	od
}
#endif

init {
	byte me;
	atomic {
		do
		:: me < WRITERS -> run writer(me); me++
		:: else -> break
		od;
		run reader()
	}
}
