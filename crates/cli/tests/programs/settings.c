/*
 * settings: says what it is set to, then fills every ring many times, and says one thing more.
 *
 *   settings [die]
 */
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include <tompion/tompion.h>

int main(int count, char **arguments)
{
	TOMPION_EVENT_INIT(settings, value, (str, name, "gain"), (u64, value, 3));
	TOMPION_EVENT_INIT(settings, value, (str, name, "a longer name"), (u64, value, 4));
	for (uint64_t i = 0; i < 100000; i++)
		TOMPION_EVENT(settings, tick, (u64, i, i));
	TOMPION_EVENT_INIT(settings, value, (str, name, "end"), (u64, value, 5));
	if (count > 1 && strcmp(arguments[1], "die") == 0)
		raise(SIGKILL);
	return 0;
}
