#include <tompion/tompion.h>

void second_source(void)
{
    TOMPION_EVENT(places, second_source);
    TOMPION_EVENT(places, shared, (i32, from, 2));
}
