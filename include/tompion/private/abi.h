/*
 * What programs and libtompion share: ABI 1. docs/design/abi.md says how it grows.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_ABI_H
#define TOMPION_PRIVATE_ABI_H

#pragma GCC system_header

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOMPION_ABI 1

/*
 * One use of a macro. Only the library writes it; the event path loads `enabled`.
 */
struct tompion_site {
    uint32_t enabled;           /* bit n up to 15: recording n takes the event; others: the library's */
    uint32_t number;            /* the library's number of the event */
    const void *description;    /* an event's description; its own size is in it */
    const void *const *enums;   /* descriptions of the enum fields' types, in field order; or NULL */
    uint32_t kind;              /* what follows */
    uint32_t reserved;
};

/* Kinds of sites. A library passes over those that it doesn't know. */
enum {
    TOMPION_SITE_RECORDS,
    TOMPION_SITE_ASKS,       /* whether the event is enabled */
    TOMPION_SITE_TRACEPOINT, /* the first member of a struct tompion_tracepoint */
    TOMPION_SITE_PROVIDED,   /* the first member of a struct tompion_provided */
    TOMPION_SITE_ATTRIBUTE   /* has only a description, of something that is said of an event */
};

/*
 * An event that a provider has for tracepoints, here or in other objects. The description names the
 * event and its class; the library composes the event's own of it and of what attributes say, and
 * puts that in its place. `enums` are those of the class.
 */
struct tompion_provided {
    struct tompion_site site;
    const void *class_description;
    void (*probe)(void);   /* is called with this structure and the tracepoint's arguments */
    const char *signature; /* the arguments that it takes, as text */
    uintptr_t reserved[2];
};

/*
 * A tracepoint: where a program says that something happens. The library finds the event that
 * belongs to it, by name and signature, and enables the tracepoint with it.
 */
struct tompion_tracepoint {
    struct tompion_site site;
    const struct tompion_provided *event; /* the library's */
    const char *signature;
    int *state; /* the library sets it to whether the tracepoint is enabled; or NULL */
    uintptr_t reserved;
};

/* The bytes of one field of variable length, or of an array. */
struct tompion_tail {
    const void *data;
    size_t size; /* in bytes */
};

/*
 * One executable or shared object. All its files share one, a weak hidden symbol, whichever headers
 * they were compiled with; so it never changes its size.
 *
 * `image` is the fixed part of the record, image_size bytes of fixed-size fields without padding,
 * where a field of variable length stands with its number of elements (uint32_t) and an array with
 * nothing. It may be read up to the next multiple of 8 bytes; what is there is 0. The bytes of the
 * tails follow in the order of their fields. The functions keep errno and allocate nothing.
 *
 * append_begin is both in one, and returns the recordings that have the event now, a bit each.
 * append_end records an event without fields in those of the given recordings that still take it,
 * whatever their filters. Where a library doesn't have these two, append gets the event instead;
 * the site may then be a copy on the stack that has fewer recordings in `enabled`.
 */
struct tompion_module {
    uint32_t abi;        /* TOMPION_ABI */
    uint32_t registered; /* files of the object whose constructors ran; this header's */
    struct tompion_site *const *sites_begin, *const *sites_end;
    void (*append)(const struct tompion_site *site, const void *image, size_t image_size);
    void (*append_tails)(const struct tompion_site *site, const void *image, size_t image_size,
                         const struct tompion_tail *tails, size_t tail_count);
    uint32_t (*append_begin)(const struct tompion_site *site, const void *image, size_t image_size,
                             const struct tompion_tail *tails, size_t tail_count);
    void (*append_end)(const struct tompion_site *site, uint32_t recordings);
    uintptr_t flags;   /* TOMPION_PASSIVE or 0; headers of before have 0 here */
    void *reserved[1]; /* the library's */
};

/*
 * Flag of a module that was not put into the program on purpose: a library that is preloaded. A
 * process with only such modules gets no thread, so that it can't be asked to take part while it
 * runs.
 */
#define TOMPION_PASSIVE 1

/*
 * Flag of a module that was made while the program runs, and is in no file: what its tracepoints
 * call is kept loaded by the library that made it.
 */
#define TOMPION_ANONYMOUS 2

/* What may be asked of the library. A library that doesn't know a verb returns -1. */
enum {
    TOMPION_UNLOAD,  /* the object goes away: the library disables its sites and forgets them */
    TOMPION_LOAD,    /* the object is there: the library sets the functions, then may enable sites at any
                        time. Not 0: it doesn't know this ABI and left the module alone */
    TOMPION_SNAPSHOT /* save what the flight recorders have; safe in signal handlers */
};

#ifdef TOMPION_OPTIONAL
#define TOMPION_PRIV_OPTIONAL __attribute__((__weak__))
#else
#define TOMPION_PRIV_OPTIONAL
#endif

int tompion_agent_v1(struct tompion_module *module, uint32_t verb) TOMPION_PRIV_OPTIONAL;

/* type 1: get is an int64_t (*)(void); 2: a size_t (*)(char *buffer, size_t size). Returns 0 or
 * -1. */
int tompion_context_v1(const char *name, uint32_t type, void *get) TOMPION_PRIV_OPTIONAL;

/* What may be asked of a state dump's function. */
enum {
    TOMPION_STATE_DUMP_REMOVE, /* it is not to be called any more; waits for a call that is going on */
    TOMPION_STATE_DUMP_ADD     /* it is to be called when a recording begins, and for those that there are */
};

/* Returns 0, or -1 for a function that was not added. Weak: older libraries don't have it. */
int tompion_state_dump_v1(const struct tompion_module *module, uint32_t verb, void (*dump)(void *data),
                          void *data) __attribute__((__weak__));

#ifdef __cplusplus
}
#endif

#endif /* TOMPION_PRIVATE_ABI_H */
