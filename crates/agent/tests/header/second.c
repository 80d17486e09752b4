/* The same events in another file of the program. */
#include <tompion/tompion.h>

#include "fields.h"

void second_file(void)
{
    TOMPION_EVENT(place, line, (u8, a, 7));
    in_header(8);
}
