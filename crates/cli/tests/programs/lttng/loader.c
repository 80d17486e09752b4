/* Loads a provider's library while it runs, as often as the second argument says, in the end
 * twice. */
#include <dlfcn.h>

#define TRACEPOINT_DEFINE
#define TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#include "loaded.h"

int main(int argc, char **argv)
{
    const int rounds = argc > 2 ? atoi(argv[2]) : 1;
    int i;
    tracepoint(loaded, tick, -1);
    for (i = 0; i < rounds; ++i) {
        void *provider = dlopen(argv[1], RTLD_NOW);
        if (!provider) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        tracepoint(loaded, tick, i);
        dlclose(provider);
        if (!tracepoint_enabled(loaded, tick) && getenv("TOMPION_SESSION"))
            return 2;
    }
    return 0;
}
