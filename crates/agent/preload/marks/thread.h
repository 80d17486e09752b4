/*
 * Open spans of threads: what an end belongs to that has no name of its own.
 *
 * A thread gets its stack by its first begin, which may take memory and a lock; others use it
 * without. When the thread ends, the next one gets it.
 */
#ifndef TOMPION_MARKS_THREAD_H
#define TOMPION_MARKS_THREAD_H

#include "named.h"

enum { MAX_OPEN_SPANS = 256 };

struct open_span {
    const struct tompion_site *end;
    const void *group;   /* spans of different groups end independently of each other */
    uint32_t recordings; /* that have the begin */
};

struct thread_spans {
    struct thread_spans *next; /* of those that no thread has */
    uint32_t depth;            /* those beyond MAX_OPEN_SPANS are only counted */
    struct open_span open[MAX_OPEN_SPANS];
};

static _Thread_local struct thread_spans *thread_spans __attribute__((tls_model("initial-exec")));
static struct thread_spans *free_thread_spans;
static pthread_key_t thread_spans_key;
static int has_thread_spans_key;

static void release_thread_spans(void *of)
{
    struct thread_spans *spans = of;
    sigset_t before;
    lock_names(&before);
    thread_spans = NULL;
    spans->next = free_thread_spans;
    free_thread_spans = spans;
    unlock_names(&before);
}

__attribute__((constructor(102))) static void make_thread_spans_key(void)
{
    has_thread_spans_key = pthread_key_create(&thread_spans_key, release_thread_spans) == 0;
}

static __attribute__((noinline, cold)) struct thread_spans *make_thread_spans(void)
{
    const int error = errno;
    sigset_t before;
    struct thread_spans *made;
    lock_names(&before);
    made = free_thread_spans;
    if (made)
        free_thread_spans = made->next;
    else
        made = take(sizeof *made);
    if (made) {
        made->depth = 0;
        thread_spans = made;
        if (has_thread_spans_key)
            pthread_setspecific(thread_spans_key, made);
    }
    unlock_names(&before);
    errno = error;
    return made;
}

/*
 * Notes a span that has begun. A signal handler that begins and ends spans meanwhile leaves the
 * stack as it was: the place is written before the depth counts it.
 */
static inline void open_span(const struct tompion_site *end, const void *group, uint32_t recordings)
{
    struct thread_spans *spans = thread_spans ? thread_spans : make_thread_spans();
    uint32_t depth;
    if (!spans)
        return;
    depth = spans->depth;
    if (depth < MAX_OPEN_SPANS)
        spans->open[depth] = (struct open_span){end, group, recordings};
    __atomic_signal_fence(__ATOMIC_RELEASE);
    spans->depth = depth + 1;
}

/*
 * Begins a span of a group. The record has its fields if a recording wants the event. One that is
 * too deep is counted as lost, and so is its end: as a record that is too large, since there is no
 * other way to say it.
 */
static inline void begin_span(const struct named_event *event, const void *group, struct record *record)
{
    uint32_t recordings = 0;
    if (is_wanted(&event->site)) {
        if (thread_spans && thread_spans->depth >= MAX_OPEN_SPANS) {
            record->tails[record->tail_count++] = (struct tompion_tail){record->image, (size_t)1 << 31};
            append_record(&event->site, record);
        } else {
            recordings = begin_record(&event->site, record);
        }
    }
    open_span(&event->end, group, recordings);
}

/* The place of the thread's innermost open span of a group, whose end may be given; or -1. */
static inline int find_open_span(const void *group, const struct tompion_site *end)
{
    const struct thread_spans *spans = thread_spans;
    int at = spans ? (int)spans->depth - 1 : -1;
    for (; at >= 0; --at) {
        if (spans->open[at].group == group && (!end || spans->open[at].end == end))
            return at;
    }
    return -1;
}

/* Records the end of the span at a place, and forgets it. */
static inline void close_span(int at)
{
    struct thread_spans *spans = thread_spans;
    const struct open_span closed = spans->open[at];
    const uint32_t depth = spans->depth;
    uint32_t i;
    if (closed.recordings)
        tompion_priv_finish(closed.end, closed.recordings);
    for (i = (uint32_t)at; i + 1 < depth; ++i)
        spans->open[i] = spans->open[i + 1];
    spans->depth = depth - 1;
}

/* Ends the innermost span of a group. Returns whether there was one. */
static inline int close_innermost(const void *group)
{
    int at;
    if (thread_spans && thread_spans->depth > MAX_OPEN_SPANS) {
        --thread_spans->depth;
        return 1;
    }
    at = find_open_span(group, NULL);
    if (at < 0)
        return 0;
    close_span(at);
    return 1;
}

#endif
