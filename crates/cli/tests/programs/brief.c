/* Gone before anybody looks. */
#include <tompion/tompion.h>

int main(void)
{
    TOMPION_EVENT(brief, first, (i32, number, 1));
    TOMPION_EVENT(brief, last, (i32, number, 2));
    return 0;
}
