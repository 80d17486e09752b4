/* The same program without any tracer. */
#include "loop.h"

void prepare_thread(void)
{
}

BODY(fields_2, __asm__ volatile("" : : "r"(i), "r"(i ^ 0x55)))

const struct body bodies[] = { ENTRY(fields_2), { 0 } };
