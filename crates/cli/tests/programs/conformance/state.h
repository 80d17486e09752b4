/*
 * What a program records it states as well, as `tompion print --format json` is to show it: one
 * line on standard output for each event, in the same order.
 */
#ifndef STATE_H
#define STATE_H

#include <stdio.h>

#include <tompion/tompion.h>

/* Fields without the braces around them. At once, so that it is also said in constructors and
 * destructors. */
static inline void state(const char *event, const char *fields)
{
    dprintf(1, "{\"event\":\"%s\",\"fields\":{%s}}\n", event, fields);
}

#define VISIBLE __attribute__((__visibility__("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* every.c, compiled as C and as C++ */
void every_c(void);
void every_cxx(void);

/* part.c, in three places */
void part_executable(void);
void part_static_library(void);
VISIBLE void part_shared_library(void);

#ifdef __cplusplus
}
#endif

#endif
