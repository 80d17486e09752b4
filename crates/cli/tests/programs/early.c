/* Allocates after its library has. */
#include <stdlib.h>

extern void *volatile kept[111];

int main(void)
{
    for (int at = 101; at < 111; at++)
        kept[at] = malloc(7777);
    return 0;
}
