/* Exits before the session can look at it. */
#include <tompion/tompion.h>

int main(void)
{
    TOMPION_EVENT(brief, first, (i32, number, 1));
    TOMPION_EVENT(brief, last, (i32, number, 2));
    return 0;
}
