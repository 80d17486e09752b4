/* For programs beside those that count (monitor.bpf.c): what these know of each CPU. */
#ifndef TOMPION_BPF_PROCESSORS_H
#define TOMPION_BPF_PROCESSORS_H

#include "monitor.h"

/* The monitor's own, by the name under which the loader has put it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	NUMBER(pinning, 1);
	TYPE(key, u32);
	TYPE(value, struct processor);
} processors SECTION(".maps");

#endif
