// Calls through a macro that passes on no argument, too.
#include "mixed.h"

#define NOTE(name, ...) tracepoint(mixed, name, __VA_ARGS__)

int main()
{
    NOTE(none);
    NOTE(one, true);
}
