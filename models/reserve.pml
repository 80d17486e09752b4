/*
 * Reserve and commit: how probes in the kernel write to a CPU's ring, where nothing can be
 * restarted. It is the algorithm of Desnoyers and Dagenais, "Lockless Multi-Core High-Throughput
 * Buffering Scheme for Kernel Tracing" (section 4), with a commit counter for each sub-buffer that
 * only ever grows.
 *
 *   here      what it is to be
 *   writer    a probe: reserves by compare-and-swap, fills, then adds to the sub-buffer's commit
 *             counter
 *   reader    user space: takes full sub-buffers, and partial ones
 *
 * Writers interleave at will. On a CPU that is more than can happen between task, softirq,
 * interrupt and NMI, which nest, and what can happen between tasks that a uprobe runs in.
 *
 * With -DOVERWRITE, full rings go on: a writer that would enter a sub-buffer of which an earlier
 * lap isn't committed yet drops its record instead, and the reader copies a committed sub-buffer
 * and then looks whether writers have come to it meanwhile.
 *
 * In discard mode a full ring loses records between two sub-buffers: the losses in front of each
 * sub-buffer are counted apart. A writer announces a loss before it decides on it, so that the
 * reader takes no sub-buffer before the losses in front of it are counted.
 *
 * Checked: what the reader takes is whole, each record once (in discard mode: all of them); each
 * record is there or counted as lost; when the reader takes a sub-buffer's first record, the
 * losses in front of it are counted, and no others; times never go backwards in a ring (with
 * -DTIME). With -DFILLED, the ring is full at the start.
 *
 * Variants that must fail:
 *   BROKEN_NO_COMMIT          the reader goes by the write position alone
 *   BROKEN_NO_SECOND_LOOK     a partial sub-buffer (with -DOVERWRITE: any) is taken without looking
 *                             again at the write position
 *   BROKEN_PLAIN_RESERVE      the position is stored without comparing
 *   BROKEN_COMMIT_EARLY       committed before it is filled
 *   BROKEN_PADDING_UNCOUNTED  what is left of a sub-buffer isn't committed by the writer that
 *                             leaves it
 *   BROKEN_NOT_FULL           what the reader has not taken is overwritten
 *   BROKEN_ROOM_BY_BYTES      a sub-buffer is entered when enough of its bytes were read, though
 *                             not all were committed (so the feasibility study did it)
 *   BROKEN_LAP                with -DOVERWRITE, sub-buffers are entered whatever their commit
 *                             counter says
 *   BROKEN_UNANNOUNCED        with -DFILLED, losses are not announced
 *   BROKEN_DECIDED_EARLY      with -DFILLED, a loss is decided on before it is announced
 *   BROKEN_COUNT_OF_LAP       with -DFILLED, a sub-buffer shares its count of losses with that of
 *                             the next lap
 *   BROKEN_OPEN               with -DFILLED, a sub-buffer is not closed behind a loss
 *   BROKEN_TIME_OUTSIDE       with -DTIME, the clock is read before the position
 */
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef EVENTS
#define EVENTS 1 /* of each writer */
#endif
#define SUBBUF 2
#define SUBBUFS 2
#define RING (SUBBUF * SUBBUFS)
#define IDS (WRITERS * EVENTS)
#define MAX_SUBBUF (RING + IDS + 1)
#define PADDING 1
#define FIRST 16
#define RECORD(id, size, k) (FIRST + (id) * 4 + (k == 0 -> size : 3))

byte write;
byte consumed;
byte commit[SUBBUFS];
byte data[RING];
byte losing; /* writers that announce a loss */
byte lost_before[2 * SUBBUFS]; /* losses in front of each sub-buffer of two laps */
#ifdef BROKEN_COUNT_OF_LAP
#define COUNTS SUBBUFS
#else
#define COUNTS (2 * SUBBUFS)
#endif
#define LOST_BEFORE(position) lost_before[((position) / SUBBUF) % COUNTS]

/* What the model knows, and no program. */
byte committed; /* bits of ids */
byte found;
byte lost;
byte finished;
byte decided[MAX_SUBBUF]; /* losses in front of each sub-buffer */

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

/* Not even a sub-buffer's first byte while any of its last lap is to be read. */
#define IS_FULL (((place + size - 1) / SUBBUF + 1) * SUBBUF - consumed > RING)

#ifndef BROKEN_UNANNOUNCED
inline announce() { atomic { losing++ } }
inline withdraw() { atomic { losing-- } }
#else
#define announce() skip
#define withdraw() skip
#endif

/* Nothing is left to close, so the loss is decided on. */
inline decide_at_boundary()
{
	if
	:: rest == 0 -> decided[place / SUBBUF]++
	:: else
	fi
}

proctype writer(byte me)
{
	byte event, id, size, old, place, rest, k;
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
again:
#ifdef BROKEN_TIME_OUTSIDE
		atomic { read_clock() }
#endif
		atomic {
			old = write;
			rest = (old % SUBBUF + size > SUBBUF -> SUBBUF - old % SUBBUF : 0);
			place = old + rest
		}
		if
#ifndef OVERWRITE
#if defined(BROKEN_ROOM_BY_BYTES)
		:: atomic { place + size - consumed > RING -> lost++; goto next }
#elif !defined(BROKEN_NOT_FULL)
		:: atomic { IS_FULL ->
#ifdef BROKEN_DECIDED_EARLY
			decide_at_boundary();
#endif
			goto lose
		}
#endif
#else
#ifndef BROKEN_LAP
		/* About to enter a sub-buffer whose earlier lap is not committed. */
		:: atomic { place % SUBBUF == 0 && place >= RING && commit[(place / SUBBUF) % SUBBUFS] != (place / RING) * SUBBUF -> lost++; goto next }
#endif
#endif
		:: atomic { else -> skip }
		fi;
#ifndef BROKEN_TIME_OUTSIDE
#ifdef TIME
		atomic { read_clock() }
#endif
#endif
#ifdef BROKEN_PLAIN_RESERVE
		atomic { write = place + size; note_time() }
#else
		atomic {
			if
			:: write == old -> write = place + size; note_time(); assert(decided[place / SUBBUF + 1] == 0)
			:: else -> goto again
			fi
		}
#endif
		if
		:: rest > 0 ->
			data[old % RING] = PADDING;
#ifndef BROKEN_PADDING_UNCOUNTED
			commit[(old / SUBBUF) % SUBBUFS] = commit[(old / SUBBUF) % SUBBUFS] + rest
#endif
		:: else
		fi;
#ifdef BROKEN_COMMIT_EARLY
		atomic { commit[(place / SUBBUF) % SUBBUFS] = commit[(place / SUBBUF) % SUBBUFS] + size }
#endif
		data[place % RING] = RECORD(id, size, 0);
		if
		:: size == 2 -> data[(place + 1) % RING] = RECORD(id, size, 1)
		:: else
		fi;
#ifndef BROKEN_COMMIT_EARLY
		atomic { commit[(place / SUBBUF) % SUBBUFS] = commit[(place / SUBBUF) % SUBBUFS] + size };
#endif
		committed = committed | (1 << id);
		goto next;
#ifndef OVERWRITE
lose:
		announce();
#ifndef BROKEN_DECIDED_EARLY
		atomic {
			if
			:: !(IS_FULL) -> withdraw(); goto again
			:: else -> decide_at_boundary()
			fi
		}
#endif
#ifndef BROKEN_OPEN
		if
		:: rest > 0 ->
			/* No smaller record goes behind one that is lost. */
			atomic {
				if
				:: write == old -> write = place; decided[place / SUBBUF]++
				:: else -> withdraw(); goto again
				fi
			}
			data[old % RING] = PADDING;
			atomic { commit[(old / SUBBUF) % SUBBUFS] = commit[(old / SUBBUF) % SUBBUFS] + rest }
		:: else
		fi;
#else
		atomic { decided[place / SUBBUF] = decided[place / SUBBUF] + (rest > 0) };
#endif
		atomic { LOST_BEFORE(place)++; lost++ };
		withdraw();
#endif
next:		atomic { event++; finished++; id = 0; size = 0; old = 0; place = 0; rest = 0 }
	od
}

/* Looks at what was copied of the current sub-buffer, from `at` to `upto`. */
inline look()
{
	do
	:: at < upto ->
		word = data[at % RING];
		if
		:: left > 0 -> assert(word == RECORD(id, 0, 1)); left--; at++
		:: left == 0 && word == PADDING -> at = at + SUBBUF - at % SUBBUF
		:: left == 0 && word != PADDING ->
			assert(word >= FIRST);
			id = (word - FIRST) / 4;
			left = (word - FIRST) % 4 - 1;
			assert(left <= 1);
			assert(!((found >> id) & 1));
			found = found | (1 << id);
			at++
		fi
	:: else -> break
	od;
	assert(left == 0 && at == upto);
	word = 0;
	id = 0
}

/* Takes the count of the losses in front of the sub-buffer that begins here. */
inline take_losses()
{
	if
	:: at % SUBBUF == 0 ->
		assert(LOST_BEFORE(at) == decided[at / SUBBUF]);
		LOST_BEFORE(at) = 0
	:: else
	fi
}

#define LAP_BASE(position) (((position) / RING) * SUBBUF)

/*
 * Takes what is committed behind `at`: the rest of a full sub-buffer, or the part that is there.
 * All words are looked at in the last moment of the copy, because whatever was changed during it is
 * still changed then.
 */
proctype reader()
{
	byte at, upto, seen, word, id, left;
end:	do
	:: atomic { at < write ->
			seen = write;
			upto = (seen / SUBBUF > at / SUBBUF -> (at / SUBBUF + 1) * SUBBUF : seen)
		}
#ifdef OVERWRITE
		/* Lapped: what was there is gone. */
		if
		:: atomic { seen > (at / SUBBUF) * SUBBUF + RING ->
			at = ((seen - 1) / SUBBUF) * SUBBUF; upto = 0; seen = 0; goto end }
		:: else
		fi;
#endif
#ifndef BROKEN_NO_COMMIT
		if
		:: atomic { commit[(at / SUBBUF) % SUBBUFS] != LAP_BASE(at) + upto - (at / SUBBUF) * SUBBUF ->
			/* When all writers have ended, everything can be read. */
			assert(finished < IDS || seen != write);
			upto = 0; seen = 0; goto end }
		:: else
		fi;
#endif
#if !defined(BROKEN_NO_SECOND_LOOK)
#ifdef OVERWRITE
		/* The copy is made; has a writer come to this sub-buffer meanwhile, or to this part of it?
		 * */
		atomic {
			if
			:: (upto % SUBBUF != 0 && write != seen) || write > (at / SUBBUF) * SUBBUF + RING ->
				upto = 0; seen = 0; goto end
			:: else -> look()
			fi;
			upto = 0; seen = 0
		}
#else
		if
		:: atomic { upto % SUBBUF != 0 && write != seen -> upto = 0; seen = 0; goto end }
		:: else
		fi;
#ifndef BROKEN_UNANNOUNCED
		if
		:: atomic { at > 0 && at % SUBBUF == 0 && losing > 0 -> upto = 0; seen = 0; goto end }
		:: else
		fi;
#endif
		atomic { take_losses(); look(); consumed = at; upto = 0; seen = 0 }
#endif
#else
		atomic { look(); consumed = at; upto = 0; seen = 0 }
#endif
	:: atomic { finished == IDS && at == write ->
#ifndef OVERWRITE
			assert(found == committed);
			assert(LOST_BEFORE(write) == decided[write / SUBBUF] || write % SUBBUF > 0)
#endif
			break
		}
	od
}

init {
	byte me;
	atomic {
#ifdef FILLED
		write = RING;
		do
		:: me < SUBBUFS -> commit[me] = SUBBUF; data[me * SUBBUF] = PADDING; me++
		:: else -> break
		od;
		me = 0;
#endif
		do
		:: me < WRITERS -> run writer(me); me++
		:: else -> break
		od;
		run reader()
	}
}
