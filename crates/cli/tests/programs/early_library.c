/* A library whose constructor allocates, before that of anything preloaded. */
#include <stdlib.h>

void *volatile kept[111];

__attribute__((constructor)) static void allocate(void)
{
    for (int at = 0; at < 100; at++)
        kept[at] = malloc(7777);
    for (int at = 0; at < 40; at++)
        free(kept[at]);
    kept[100] = calloc(7, 7777);
}
