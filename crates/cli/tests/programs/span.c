/* Marks and a span, whose text `print --calls` shows. */
#include <tompion/tompion.h>

int main(void)
{
	const char *names[] = { "orders", "a\x1b[2J" };

	for (int i = 0; i < 2; i++)
		TOMPION_MARK(loaded, "rows %d of '%s'", 12 + i, names[i]);
	TOMPION_SPAN(planner, step, (i32, number, 1));
	return 0;
}
