/*
 * Tompion: events of C and C++ programs.
 *
 *     #include <tompion/tompion.h>
 *
 *     TOMPION_EVENT(db, query_done, (u64, rows, n), (str, table, name), (f64, ms, t));
 *
 * Compile as C11 or C++17 (or later) with gcc or clang and link with -ltompion. There is nothing
 * else: no provider file, no list of events, no start-up call. The guide is
 * docs/guide/instrument.md.
 *
 * Costs. While no recording takes the event: one load and one branch; no value is computed. While
 * one does: the fields are gathered on the stack and copied into a ring, without a lock, a system
 * call or an allocation.
 *
 * Threads and signals. Every macro may be used from any thread at any time, also in signal
 * handlers, in constructors and in destructors, and after fork(). No macro changes errno, unless a
 * value's own expression does.
 *
 * Where. In any function, inline ones, templates, lambdas and constexpr ones of C++ included (at
 * compile time nothing is recorded). An event may be used in many places with the same fields. A
 * use inside a value of another event is not possible.
 *
 * Names that begin with tompion_priv_ or TOMPION_PRIV_ are not for use.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TOMPION_H
#define TOMPION_TOMPION_H

#pragma GCC system_header

#if !defined(__GNUC__)
#error "tompion.h needs gcc or clang"
#endif
#if defined(__cplusplus) && __cplusplus < 201703L
#error "tompion.h needs C++17 or later (-std=c++17)"
#endif

#include <stddef.h>
#include <stdint.h>

/*
 * #define TOMPION_OPTIONAL before the #include makes the library optional: link without -ltompion,
 * and the program runs without it. It is then loaded (libtompion.so.0) when the program starts, if
 * the environment has TOMPION_SESSION, as it has under `tompion record`, or TOMPION_RECORD. Needs
 * -ldl before glibc 2.34. Use it in all files of a program or shared object, or in none.
 */

#include "private/abi.h"
#include "private/mark.h"

/* ---- Events -------------------------------------------------------------------------------------- */

/*
 * TOMPION_EVENT(provider, name, field...);
 *
 * A statement that records the event provider:name with 0 to 64 fields. A field is
 *
 *     (i8|i16|i32|i64, name, value)        signed integer
 *     (u8|u16|u32|u64, name, value)        unsigned integer
 *     (x8|x16|x32|x64, name, value)        unsigned integer, shown in hexadecimal; x64 takes
 *                                          pointers, too
 *     (n16|n32|n64, name, value)           unsigned integer in network order, as in packets and
 *                                          addresses: the value as it lies there, not converted
 *     (ni16|ni32|ni64, name, value)        the same, signed
 *     (nx16|nx32|nx64, name, value)        the same, unsigned and shown in hexadecimal
 *     (f32|f64, name, value)               float, double
 *     (bool, name, value)                  0 is false, anything else true
 *     (str, name, pointer)                 text up to its NUL; NULL is recorded as "(null)". In C++
 *                                          also a std::string, std::string_view or the like
 *     (strn, name, pointer, max)           text up to its NUL, at most max bytes; NULL as for str
 *     (bytes, name, pointer, size)         size bytes of anything; NULL is recorded as no bytes
 *     (array, name, element, pointer, N)   N integers; N is a constant expression; not NULL
 *     (sequence, name, element, pointer, count)    count integers; NULL is recorded as no elements
 *     (array_text, name, pointer, N)       N bytes that are shown as text, as far as the first NUL;
 *                                          N is a constant expression; not NULL
 *     (sequence_text, name, pointer, count)        count bytes of text; NULL is recorded as none
 *     (enum, name, enumeration, value)     an integer with names, see TOMPION_ENUM; recorded as
 *                                          int64_t
 *     (enum_i8|...|enum_i64|enum_u8|...|enum_u64, name, enumeration, value)     the same, so large
 *     (struct, name, field...)             a structure of 1 to 64 fields; a structure may stand in
 *                                          a structure, but no deeper
 *
 * where element is one of i8 to x64 or n16 to nx64, and the pointer points to integers of that size
 * (or to void or bytes, which need no alignment). Values are converted as by a C cast. Each is
 * evaluated once, in the order of the fields, and only if the event is recorded; do not leave side
 * effects in them.
 *
 * provider, name, the field's type and the field's name are words, never expanded as macros: they
 * may be `linux`, `errno` or `bool`. (A macro around TOMPION_EVENT that passes its own arguments on
 * does expand them.) Fields' names are C identifiers, each used once in an event or structure.
 *
 * A text's length is taken once. If another thread changes the text meanwhile, the record has the
 * old length and any mixture of the two texts. A record is at most 64 KiB long, all fields and a
 * header of 16 bytes together, and at most half a sub-buffer; a larger one is not recorded but
 * counted as lost.
 */
#define TOMPION_EVENT(...) \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_INSTANT, 0, "", DEBUG_LINE, ##__VA_ARGS__)

/*
 * TOMPION_EVENT_LEVEL(level, provider, name, field...);
 *
 * The same with a log level, from the most severe: EMERG (0), ALERT, CRIT, ERR, WARNING, NOTICE,
 * INFO, DEBUG_SYSTEM, DEBUG_PROGRAM, DEBUG_PROCESS, DEBUG_MODULE, DEBUG_UNIT, DEBUG_FUNCTION,
 * DEBUG_LINE (13, which macros without a level have), DEBUG (14). Levels are words too, whatever
 * <syslog.h> or others define.
 *
 *     TOMPION_EVENT_LEVEL(WARNING, db, slow_query, (str, text, query), (u32, seconds, s));
 */
#define TOMPION_EVENT_LEVEL(...) \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_INSTANT, 0, "", ##__VA_ARGS__)

/*
 * TOMPION_EVENT_INIT(provider, name, field...);
 *
 * The same for events that describe the initial state: settings, names, versions. A flight recorder
 * keeps them, however long ago they happened.
 */
#define TOMPION_EVENT_INIT(...)                                                                       \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_INSTANT, tompion_priv_flag_INIT, "", DEBUG_LINE,       \
                           ##__VA_ARGS__)

/*
 * TOMPION_EVENT_ENABLED(provider, name)
 *
 * An expression: nonzero while a recording takes the event. For values that are costly to prepare:
 *
 *     if (TOMPION_EVENT_ENABLED(db, plan)) {
 *         char *text = plan_to_text(plan);
 *         TOMPION_EVENT(db, plan, (str, text, text));
 *         free(text);
 *     }
 *
 * Not in constexpr functions.
 */
#define TOMPION_EVENT_ENABLED(...) TOMPION_PRIV_ENABLED(, "", ##__VA_ARGS__)

/*
 * TOMPION_ENUM(enumeration, label...);
 *
 * Defines an enumeration for `enum` fields of this file, at file or namespace scope, with 1 to 64
 * labels. A label is (word, value) or (word, low, high); values are constant expressions within
 * int64_t (for fields of type enum_u64, within uint64_t), low <= high; words are not expanded. A
 * value that no label covers is shown as a number.
 *
 *     TOMPION_ENUM(machine_state, (idle, 0), (running, STATE_RUNNING), (failed, -9, -1));
 *     ...
 *     TOMPION_EVENT(plant, machine, (u32, number, n), (enum, state, machine_state, m->state));
 */
#define TOMPION_ENUM(...) TOMPION_PRIV_ENUM(, ##__VA_ARGS__)

/* ---- Spans ----------------------------------------------------------------------------------------- */

/*
 * TOMPION_SPAN(provider, name, field...);
 *
 * A declaration: a span of the thread's time, from here to the end of the scope, however that is
 * left: in C++ by an exception, too. It is recorded as the events provider:name_begin, with the
 * fields, and provider:name_end. The end goes to those recordings that have the begin: a span that
 * began while there was no recording has none. Not in constexpr functions.
 *
 *     void query(const char *table)
 *     {
 *         TOMPION_SPAN(db, query, (str, table, table));
 *         ...
 *     }
 *
 * Where nothing runs at the end of a scope, nothing is recorded: longjmp(), exit(), and in C
 * without -fexceptions pthread_exit() and cancellation.
 */
#define TOMPION_SPAN(...) TOMPION_PRIV_SPAN(, tompion_priv_kind_BEGIN, DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_SPAN_LEVEL(...) TOMPION_PRIV_SPAN(, tompion_priv_kind_BEGIN, ##__VA_ARGS__)

/*
 * TOMPION_BEGIN(provider, name, field...);
 * TOMPION_END(provider, name, field...);
 *
 * The same as two statements, for spans that don't end where they began. Spans of one thread that
 * have the same name end in the reverse order. The end is recorded whether or not the begin was.
 */
#define TOMPION_BEGIN(...) \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_BEGIN, 0, "_begin", DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_BEGIN_LEVEL(...) \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_BEGIN, 0, "_begin", ##__VA_ARGS__)
#define TOMPION_END(...) \
    TOMPION_PRIV_STATEMENT(, tompion_priv_kind_END, 0, "_end", DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_END_LEVEL(...) TOMPION_PRIV_STATEMENT(, tompion_priv_kind_END, 0, "_end", ##__VA_ARGS__)

/*
 * TOMPION_JOB(provider, name, deadline_ns, field...);
 *
 * A span, as TOMPION_SPAN, that is one activation of a periodic job. It should last no longer than
 * deadline_ns nanoseconds (uint64_t; 0: no matter how long), which stands in the field
 * `deadline_ns` before the 0 to 63 others.
 *
 *     for (;;) {
 *         wait_for_next_period();
 *         TOMPION_JOB(motor, control, 500 * 1000, (f64, error, e));
 *         ...
 *     }
 */
#define TOMPION_JOB(...) TOMPION_PRIV_JOB(, DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_JOB_LEVEL(...) TOMPION_PRIV_JOB(, ##__VA_ARGS__)
#define TOMPION_PRIV_JOB(e, level, p, n, deadline, ...)                                               \
    TOMPION_PRIV_SPAN(e, tompion_priv_kind_JOB, e##level, e##p, e##n, (u64, deadline_ns, deadline),   \
                      ##__VA_ARGS__)

/*
 * TOMPION_SPAN_ENABLED(provider, name)
 *
 * As TOMPION_EVENT_ENABLED, for the begin of a span or job.
 */
#define TOMPION_SPAN_ENABLED(...) TOMPION_PRIV_ENABLED(, "_begin", ##__VA_ARGS__)

/* ---- Counters, flows, marks ------------------------------------------------------------------------ */

/*
 * TOMPION_COUNTER(provider, name, value);
 *
 * A statement: a quantity has a new value. It is recorded as i64, u64 or f64: as floating point if
 * the value's type is one, as unsigned if that is unsigned, else as signed.
 */
#define TOMPION_COUNTER(...) TOMPION_PRIV_COUNTER(, DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_COUNTER_LEVEL(...) TOMPION_PRIV_COUNTER(, ##__VA_ARGS__)
#define TOMPION_PRIV_COUNTER(e, level, p, n, amount)                                                  \
    TOMPION_PRIV_STATEMENT(e, tompion_priv_kind_COUNTER, 0, "", e##level, e##p, e##n,                 \
                           (counted, value, amount))

/*
 * TOMPION_FLOW(provider, name, id);
 *
 * A statement: a piece of work, known by its id (an integer or a pointer), passes here. The steps
 * of a flow have the same names and id, in whichever threads and processes they happen.
 */
#define TOMPION_FLOW(...) TOMPION_PRIV_FLOW(, DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_FLOW_LEVEL(...) TOMPION_PRIV_FLOW(, ##__VA_ARGS__)
#define TOMPION_PRIV_FLOW(e, level, p, n, number)                                                     \
    TOMPION_PRIV_STATEMENT(e, tompion_priv_kind_FLOW, 0, "", e##level, e##p, e##n, (x64, id, number))

/*
 * TOMPION_MARK(name, format, argument...);
 *
 * A statement: the event mark:name with the message that printf would make of the format, a string
 * literal, and 0 to 32 arguments. The compiler checks them as it checks printf's (-Wformat). The
 * message is made when the trace is read: recorded are the arguments, as fields that are called
 * after the word before their conversion.
 *
 *     TOMPION_MARK(loaded, "rows %d table %s", n, name);        fields rows and table
 *
 * Arguments are evaluated once, and only if the mark is recorded. Integers have the size that
 * printf gets, double and long double become f64, a text is copied: as much of it as printf would
 * read, so "%.*s" and "%.5s" may take text without a NUL. Pointers, wide strings (%ls) among them,
 * are recorded as addresses. %n and %m are refused where the compiler can tell (pass errno to %d);
 * else the one records an address and the other nothing.
 */
#define TOMPION_MARK(...) TOMPION_PRIV_MARK(, DEBUG_LINE, ##__VA_ARGS__)
#define TOMPION_MARK_LEVEL(...) TOMPION_PRIV_MARK(, ##__VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Recordings ------------------------------------------------------------------------------------ */

/*
 * Asks that what the flight recorders of this process have now be saved (`tompion record --mode
 * overwrite` and the like). Does not wait until it is.
 *
 * Returns 0 if a session was asked, -1 if there is no flight recorder, or none that can be asked.
 * May be called from any thread and in signal handlers; keeps errno.
 */
TOMPION_PRIV_INLINE int tompion_snapshot(void)
{
    if (!tompion_priv_agent)
        return -1;
    return tompion_priv_agent(&tompion_module_v1, TOMPION_SNAPSHOT) == 0 ? 0 : -1;
}

/* ---- Context --------------------------------------------------------------------------------------- */

/*
 * Defines context of the application's own, which recordings can add to every event: the number of
 * the request at hand, the name of the tenant. `name` is "provider:name" and is copied. `get`
 * returns the value at the moment of the call; text is written to `buffer`, at most `size` bytes
 * (64 or fewer) without a NUL, and the number of bytes returned.
 *
 * `get` is called for every event that is recorded with this context, in the thread that records
 * it: in any thread, at any time, in signal handlers, too. It must be quick, and must not lock,
 * allocate, or record events. Defining a name again replaces it; with NULL it is 0 or empty from
 * then on. A library that is unloaded takes its contexts back like that, when its functions can't
 * be running any more.
 *
 * Return 0, or -1 if the library is absent or can't take it (a name that isn't two words with a
 * `:`, one that has the other type, more than 8). Not in signal handlers.
 */
TOMPION_PRIV_INLINE int tompion_context_i64(const char *name, int64_t (*get)(void))
{
    int (*define)(const char *, uint32_t, void *) = tompion_priv_context;
    return define ? define(name, 1, (void *)get) : -1;
}
TOMPION_PRIV_INLINE int tompion_context_text(const char *name, size_t (*get)(char *buffer, size_t size))
{
    int (*define)(const char *, uint32_t, void *) = tompion_priv_context;
    return define ? define(name, 2, (void *)get) : -1;
}

/* ---- State dumps ----------------------------------------------------------------------------------- */

/*
 * Has `dump(data)` called for each recording of this process: for those that there are now, and
 * when another one begins. The function records the program's present state as ordinary events:
 * open connections, settings, names of objects. Only the recording that begins gets them. It keeps
 * them: no flight recorder overwrites them, and each chunk has them.
 *
 * A thread of the library calls the functions, one at a time. It has the program's descriptors, a
 * stack of 256 KiB, and takes no signals but those of its own faults. A process that can't be asked
 * to take part while it runs (TOMPION_ATTACH=0) has no such thread: there, this function calls
 * `dump` for the recordings that there are, before it returns.
 *
 * The function may lock and allocate, and add and remove functions. It should return within some
 * milliseconds. No C++ exception may leave it. In the child of a fork, locks that other threads of
 * the parent held stay locked (see pthread_atfork). Up to 512 KiB of one recording are kept, some
 * thousand events; the others count as lost (state_dump_full). Filters apply as to all events.
 * Events of the function are not counted in place and match no trigger.
 *
 * After tompion_state_dump_remove() the function does not run any more, unless it has removed
 * itself. Do not call that with a lock that the function takes. What unloads a library
 * (dlclose) removes its functions, and waits for one that runs; such a function must not load or
 * unload libraries. When the program calls exit() or returns from main(), no call begins any more,
 * and one that runs is waited for, at most a second.
 *
 * Adding the same pair again changes nothing. Returns 0, or -1 if the library is absent, older than
 * this, or has 64 functions already; tompion_state_dump_remove() also if it doesn't know the pair.
 * Not in signal handlers.
 */
TOMPION_PRIV_INLINE int tompion_state_dump(void (*dump)(void *data), void *data)
{
    int (*change)(const struct tompion_module *, uint32_t, void (*)(void *), void *) = tompion_priv_state_dump;
    return change ? change(&tompion_module_v1, TOMPION_STATE_DUMP_ADD, dump, data) : -1;
}
TOMPION_PRIV_INLINE int tompion_state_dump_remove(void (*dump)(void *data), void *data)
{
    int (*change)(const struct tompion_module *, uint32_t, void (*)(void *), void *) = tompion_priv_state_dump;
    return change ? change(&tompion_module_v1, TOMPION_STATE_DUMP_REMOVE, dump, data) : -1;
}

#ifdef __cplusplus
}

namespace tompion {
/*
 * A state dump by a callable of no arguments, until the end of its scope or object:
 *
 *     tompion::state_dump connections([this] {
 *         for (const auto &c : open_) TOMPION_EVENT(server, connection, (str, peer, c.peer));
 *     });
 *
 * Declare it behind what the callable uses, so that it is destroyed first.
 */
template <class Callable> class state_dump {
  public:
    explicit state_dump(Callable callable) : callable_(static_cast<Callable &&>(callable))
    {
        tompion_state_dump(call, this);
    }
    ~state_dump() { tompion_state_dump_remove(call, this); }
    state_dump(const state_dump &) = delete;
    state_dump &operator=(const state_dump &) = delete;

  private:
    static void call(void *self) noexcept { static_cast<state_dump *>(self)->callable_(); }
    Callable callable_;
};
} /* namespace tompion */
#endif

#endif /* TOMPION_TOMPION_H */
