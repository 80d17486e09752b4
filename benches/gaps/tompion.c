/* Appends to Tompion's ring. */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#define EVENT(i) TOMPION_EVENT(bench, fields_2, (u64, a, i), (u64, b, (i) ^ 0x55))
#include "gaps.h"
