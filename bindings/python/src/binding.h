/*
 * The extension module tompion._tompion: what its files share.
 *
 * An event is described once, in Python (tompion/_describe.py), as the bytes that
 * docs/design/events.md defines. From then on it is a site of the library, as a macro of
 * <tompion/tompion.h> makes one: while it is disabled, a call loads one word; while a recording
 * takes it, the values are gathered on the stack and appended without a lock or a system call.
 *
 * All of it runs with the GIL held, except where a comment says otherwise.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PYTHON_BINDING_H
#define TOMPION_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The structures of the ABI, without the macros that make sites in this file. The functions are
 * looked up while the program runs. */
#define TOMPION_OPTIONAL
#include <tompion/private/abi.h>

/* Most fields of an event, members of structures counted. */
#define MAX_FIELDS 64
/* Most bytes of an event's fixed part: MAX_FIELDS of 8 bytes. */
#define MAX_IMAGE (MAX_FIELDS * 8)
/* Most objects that an event holds until it is appended: three for an array of other items. */
#define MAX_HELD (MAX_FIELDS * 3)

/* Codes of types, as descriptions have them. */
enum code {
    CODE_I8 = 1,
    CODE_I64 = 4,
    CODE_U8 = 5,
    CODE_U64 = 8,
    CODE_X64 = 12,
    CODE_F32 = 13,
    CODE_F64 = 14,
    CODE_BOOL = 15,
    CODE_STR = 16,
    CODE_BYTES = 18,
    CODE_ARRAY = 19,
    CODE_SEQUENCE = 20,
    CODE_ENUM = 21,
    CODE_STRUCT = 22
};

/* Flags of a field, as descriptions have them. */
enum { FIELD_NETWORK = 1, FIELD_TEXT = 2 };

/* A field, read from a description. The members of a structure come behind it. */
struct field {
    uint8_t code;
    uint8_t element;
    uint16_t flags;
    uint32_t count; /* elements of an array, members of a structure */
};

/* An event: its site, and its fields. It is never freed, because the library keeps its address. */
struct descriptor {
    struct tompion_site site;
    struct tompion_site *sites[1];
    struct tompion_module module;
    uint32_t field_count; /* without members of structures */
    uint32_t total;       /* with them */
    struct field fields[];
};

/* ---- library.c ---- */

/* Finds the library and loads it, unless the environment forbids it. Never fails: without the
 * library, events are described and not recorded. */
void library_open(void);
/* Hands a descriptor's site to the library. Releases the GIL meanwhile. */
void library_register(struct descriptor *descriptor);
/* Path of the library and the reason why there is none, as (path, reason); one of them is None. */
PyObject *library_status(void);
/* True if a flight recorder was asked to save what it has. */
bool library_snapshot(void);
PyObject *library_add_state_dump(PyObject *module, PyObject *function);
PyObject *library_remove_state_dump(PyObject *module, PyObject *function);

/* ---- descriptor.c ---- */

/* The event of a description and its enumerations' (a tuple of bytes), made if it is new. Null with
 * an exception if the description can't be one of ours. */
struct descriptor *descriptor_new(PyObject *description, PyObject *enumerations);
/* Number of events, and how many of them a recording takes. */
void descriptor_count(size_t *known, size_t *enabled);

static inline bool is_enabled(const struct descriptor *descriptor)
{
    return __atomic_load_n(&descriptor->site.enabled, __ATOMIC_RELAXED) != 0;
}

/* ---- record.c ---- */

/* What has to be released behind the append. */
struct held {
    enum { HELD_OBJECT, HELD_BUFFER, HELD_MEMORY } kind;
    union {
        PyObject *object;
        Py_buffer buffer;
        void *memory;
    };
};

/* The values of an event. It lies on the stack and is not cleared: only so much of it is set as
 * there are values. */
struct record {
    /* Whether integers are refused that have no place in their field. Otherwise they are cut, as by
     * a cast in C. */
    bool is_exact;
    size_t size;
    size_t tail_count;
    size_t held_count;
    uint64_t image[MAX_IMAGE / 8 + 1];
    struct tompion_tail tails[MAX_FIELDS];
    struct held held[MAX_HELD];
};

/* Writes the values in the order of the fields. False with an exception if one has no form in its
 * field. What was held is released by record_release in either case. */
bool record_fill(struct record *record, const struct descriptor *descriptor, PyObject *const *values);
void record_release(struct record *record);

/* Records the event in the recordings that take it. Returns them, a bit each. */
uint32_t record_append(const struct descriptor *descriptor, struct record *record);
/* Records the end of a span in these recordings, whatever their filters. */
void record_end(const struct descriptor *descriptor, uint32_t recordings);
/* The same of a span that has a number, which is the end's only field. */
void record_numbered_end(const struct descriptor *descriptor, uint32_t recordings, uint64_t number);
/* Records an event without fields, or with a fixed part alone. */
void record_image(const struct descriptor *descriptor, const void *image, size_t size);

/* How integers get into their fields: EXACT for types that were not declared. */
enum { CUT = false, EXACT = true };

/* Both: fills and appends, and notes a refusal. `recordings` are those that take the event. False
 * with an exception that is the program's, as of note_refusal. */
bool record_values(const struct descriptor *descriptor, PyObject *const *values, bool is_exact, uint32_t *recordings);

/* Notes that an event was not recorded because of its values, and why, once. Clears the exception
 * of which it is the consequence. One that is no Exception (KeyboardInterrupt, SystemExit) has to
 * reach the program: it stays, and the answer is false. */
bool note_refusal(const char *reason);
PyObject *refusals(void);

/* ---- family.c ---- */

/* Kinds of events, as descriptions have them. */
enum kind {
    KIND_INSTANT,
    KIND_BEGIN,
    KIND_END,
    KIND_COUNTER,
    KIND_FLOW,
    KIND_JOB,
    KIND_MARK,
    /* Of this module alone: begins of spans within a task, see span.c. */
    KIND_BEGIN_IN_TASK,
    KIND_JOB_IN_TASK
};

/* An event for values of certain types, with the end of the span that it begins, or null. */
struct variant {
    Py_ssize_t count; /* of values */
    PyTypeObject **types;
    char *elements; /* what element_of says of each value; null if it says nothing of any */
    struct descriptor *main; /* null if such values are refused */
    struct descriptor *end;
    char *refusal; /* the reason */
};

/* Values behind the program's own in the begin of a span within a task: span, parent, task. */
enum { NUMBERS = 3 };

/* What identifies the events of one call: kind, name, level and the fields' names (of a mark, its
 * format). All are borrowed; level and names may be null. */
struct call {
    enum kind kind;
    PyObject *name;
    PyObject *level;
    PyObject *names;
};

/* Finds the event for such values, or describes it. Null without an exception if the values are
 * refused or there are too many events, which is counted; null with an exception for names that
 * can't be, and for a mark whose arguments are not as many as in its format. */
const struct variant *find_variant(const struct call *call, PyObject *const *values, Py_ssize_t count);
PyObject *set_describer(PyObject *module, PyObject *describer);

PyObject *record_event(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *record_counter(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *record_flow(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *record_mark(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- elements.c ---- */

/* What a value's elements are; of an array, its typecode. */
enum { ELEMENT_NONE = 0, ELEMENT_INTEGER = 1, ELEMENT_OTHER = 2 };

/* What the elements of a list, tuple or array are; ELEMENT_NONE for any other value. */
char element_of(PyObject *value);

/* ---- event.c, span.c, steps.c: types; functions.c: functions' entries and exits ---- */

extern PyType_Spec event_spec;
extern PyType_Spec span_spec;
extern PyType_Spec steps_spec;
extern PyTypeObject *span_type;

PyObject *make_span(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *make_job(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *set_decorator(PyObject *module, PyObject *decorator);
PyObject *set_task_events(PyObject *module, PyObject *descriptions);
PyObject *current_task(PyObject *module, PyObject *unused);
/* The task that this thread runs, or 0. */
uint64_t running_task(void);
/* The innermost open span of the task that this thread runs; null outside of tasks. */
uint64_t *innermost_span(void);

PyObject *make_function(PyObject *module, PyObject *list);
PyObject *start_functions(PyObject *module, PyObject *describe);
PyObject *start_functions_of_thread(PyObject *module, PyObject *unused);
PyObject *stop_functions(PyObject *module, PyObject *unused);

#endif
