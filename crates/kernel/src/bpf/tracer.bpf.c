/*
 * Tompion's programs in the kernel: each event has one of its own, which the kernel guards by
 * itself, so that an interrupt's event isn't dropped because it came in the middle of another's.
 */
#include "scheduler.h"
#include "interrupts.h"
#include "io.h"
#include "syscalls.h"
#include "probes.h"
#include "generic.h"

/* Helpers that read memory are for programs under this licence. */
const char licence_of_programs[] SECTION("license") = "Dual MIT/GPL";
