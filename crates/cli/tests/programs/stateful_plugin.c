/*
 * A library with a state dump that it never removes; unloading it must wait for the dump.
 */
#include <tompion/tompion.h>

#include <unistd.h>

static volatile unsigned here = 7;

static void dump(void *data)
{
	usleep(3000);
	/* This would crash if the library were gone. */
	TOMPION_EVENT(stateful, plugin, (u32, number, *(volatile unsigned *)data));
	usleep(3000);
	here++;
}

__attribute__((constructor)) static void begin(void)
{
	tompion_state_dump(dump, (void *)&here);
}
