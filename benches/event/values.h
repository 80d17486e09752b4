/* What the events' fields are filled with. The compiler sees no contents: texts have to be
 * measured. */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include <stddef.h>
#include <stdint.h>

#define NUMBERS 16

extern char text_8[], text_64[], text_512[], text_4096[];
extern uint8_t bytes[];
extern uint32_t numbers[];
extern volatile size_t number_count;

/* To be called first. */
void fill_values(void);

#endif
