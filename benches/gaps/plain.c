/* The bare loop: what the machine and the two clock reads do by themselves. */
#define _GNU_SOURCE
#include <stdint.h>

#define EVENT(i) __asm__ volatile("" : : "r"(i))
#include "gaps.h"
