/* A plugin with two events, of which one is recorded by each call. */
#include <tompion/tompion.h>

void plugin_call(long round);

void plugin_call(long round)
{
	if (TOMPION_EVENT_ENABLED(plugin, called))
		TOMPION_EVENT(plugin, called, (i64, round, round), (str, parity, round % 2 ? "odd" : "even"));
	if (round < 0)
		TOMPION_EVENT(plugin, never, (i64, round, round));
}
