/*
 * Pieces of work that begin and end in any order and thread: flows of two steps, which have one id.
 * The name of a piece is known at its end by the id.
 */
#ifndef TOMPION_MARKS_FLOW_H
#define TOMPION_MARKS_FLOW_H

#include "named.h"

/* The steps of such a flow, as an enumeration of the event's. */
enum { STEP_START, STEP_END };

static const struct TOMPION_PRIV_PACKED {
    struct tompion_priv_enum_head head;
    char name[5];
    struct tompion_priv_label_head start_head;
    char start[6];
    struct tompion_priv_label_head end_head;
    char end[4];
} step_labels = {{TOMPION_PRIV_ENUM_MAGIC, sizeof step_labels, 1, 2, 5}, "step", {0, 0, 6}, "start", {1, 1, 4}, "end"};
static const void *const step_enums[] = {&step_labels, NULL};

/* The code of an enumeration of u8. */
#define STEP_FIELD {"step", tompion_priv_code_enum_u8}

static inline void put_step(struct record *to, uint64_t id, uint8_t step)
{
    put_u64(to, id);
    put(to, &step, sizeof step);
}

#endif
