/*
 * A consumer that is killed and started again, and a machine whose power fails, with rings in a
 * file (`--backing`): everything is in the trace exactly once.
 *
 *   here              in the code
 *   writer            an append as append.pml has it: the record, then the position
 *   consumer, copy    session/src/process.rs, collect
 *   consumer, packet  writer/src/source.rs: a packet is written, and can be torn
 *   consumer, sync    writer/src/source.rs: the stream reaches the medium
 *   consumer, raise   session/src/process/durable.rs: room is given back up to the last packet's
 *                     ring_end
 *   restart           writer/src/resume.rs: a torn packet is cut off, reading goes on at the last
 *                     one's ring_end
 *   writeback         the kernel, which writes pages back when it likes, in any order
 *
 * A recovery is a consumer too, and may be killed like the first one. When the power fails, what
 * the medium has is what remains: pages of the ring from different moments, and the trace's files
 * up to some byte behind what was synced. Records are told from older ones in their place by their
 * position.
 *
 * Checked: no record stands in the trace twice, or without having been appended; when the consumer
 * has caught up the trace has everything; a writer that is told that there is room overwrites
 * nothing that isn't in the trace on the medium; after a power failure each record below the ring's
 * position on the medium is in the trace or counted as missing.
 *
 * Variants that must fail:
 *   BROKEN_RAISED_EARLY     room is given back when the bytes were copied
 *   BROKEN_RAISED_UNSYNCED room is given back when the packet was written, but perhaps not to the
 *   medium
 *   BROKEN_FROM_CONSUMED    a restarted consumer goes on where room was given back
 *   BROKEN_TORN             a restarted consumer takes a torn packet for a whole one
 *   BROKEN_BELIEVED         after a power failure records are taken without looking whose they are
 */
#define RECORDS 5
#define RING 2

byte write;
byte consumed;
byte data[RING];    /* whose record stands there: position + 1 */

byte on_medium_write;
byte on_medium_consumed;
byte on_medium[RING];

byte file;          /* ring_end of the last whole packet */
byte synced;        /* the same of what is on the medium for certain */
byte ends;          /* bits of positions at which packets end */
byte present;       /* bits of records in whole packets */
bit torn;           /* the file ends with part of a packet */
byte torn_end;
bit failed;         /* the power has failed */
byte missing;       /* bits of records that recovery has counted as not there any more */

proctype writer()
{
end:	do
	:: write == RECORDS || failed -> break
	/* A writer that finds no room loses an event, and that changes nothing here. */
	:: atomic { !failed && write < RECORDS && write - consumed < RING ->
			assert(write < RING || ((present >> (write - RING)) & 1));
			data[write % RING] = write + 1 }
		if
		:: atomic { !failed -> write++ }
		:: failed
		fi
	od
}

active proctype writeback()
{
end:	do
	:: atomic { !failed && (on_medium_write != write || on_medium_consumed != consumed) ->
			on_medium_write = write; on_medium_consumed = consumed }
	:: atomic { !failed && on_medium[0] != data[0] -> on_medium[0] = data[0] }
	:: atomic { !failed && on_medium[1] != data[1] -> on_medium[1] = data[1] }
	:: failed -> break
	od
}

/* The power fails: the medium is what there is. */
inline fail()
{
	failed = 1;
	write = on_medium_write;
	consumed = on_medium_consumed;
	data[0] = on_medium[0];
	data[1] = on_medium[1];
	/* The file has any length from what was synced to what was written, cut in a packet or between
	 * two. */
	do
	:: file > synced ->
		torn = 1;
		torn_end = file;
		file--;
		present = present & (255 - (1 << file));
		do
		:: !((ends >> file) & 1) && file > synced -> file--; present = present & (255 - (1 << file))
		:: else -> break
		od
	:: break
	od;
	if
	:: torn = 0
	:: skip
	fi;
	/* Room was given back for nothing that the medium doesn't have. */
	assert(consumed <= file)
}

/* A step of the consumer; it may be killed before each, and is when the power has failed. */
#define STEP(step)                                              \
	if                                                      \
	:: atomic { knows == failed -> step }                   \
	:: goto restart                                         \
	fi

proctype consumer()
{
	byte read, copied, at;
	bit knows;
restart:
	atomic {
		knows = failed;
		copied = 0;
		at = 0;
#ifdef BROKEN_TORN
		file = (torn -> torn_end : file);
#endif
		torn = 0;
		torn_end = 0;
#ifdef BROKEN_FROM_CONSUMED
		read = consumed
#else
		read = file
#endif
	}
end:	do
	:: atomic { knows == failed && write > read -> copied = write; at = read }
#ifdef BROKEN_RAISED_EARLY
		STEP(consumed = copied);
#endif
		STEP(torn = 1; torn_end = copied);
		STEP(torn = 0;
			torn_end = 0;
			do
			:: at < copied ->
				if
				:: data[at % RING] == at + 1 ->
					assert(!((present >> at) & 1));
					present = present | (1 << at)
				:: data[at % RING] != at + 1 ->
					assert(failed);
#ifdef BROKEN_BELIEVED
					/* So this is what the trace has got. */
					assert(data[at % RING] > 0 && !((present >> (data[at % RING] - 1)) & 1));
					present = present | (1 << (data[at % RING] - 1))
#else
					/* What is not there any more is counted. */
					missing = missing | (1 << at)
#endif
				fi;
				at++
			:: else -> break
			od;
			file = copied;
			ends = ends | (1 << file));
#ifndef BROKEN_RAISED_UNSYNCED
		STEP(synced = file);
#endif
#ifndef BROKEN_RAISED_EARLY
		STEP(consumed = file);
#endif
		STEP(read = copied; copied = 0; at = 0)
	:: atomic { knows == failed && read >= write && (failed || write == RECORDS) ->
			at = 0;
			do
			:: at < write -> assert(((present | missing) >> at) & 1); at++
			:: else -> break
			od;
			break
		}
	:: goto restart
	od
}

/* The power fails at any moment, or never. */
active proctype power()
{
	atomic { fail() }
}

init { atomic { run writer(); run consumer() } }
