/* Registers providers that no version of LTTng-UST has, and one that says too little. */
#include <stddef.h>
#include <stdint.h>

struct provider {
    uint32_t struct_size;
    const char *name;
    const void *events;
    unsigned count;
    uint32_t major, minor;
};
void *lttng_ust_probe_register(const struct provider *);
int lttng_ust_tracepoint_module_register(void *const *, int);

int main(void)
{
    const struct provider newer = {sizeof newer, "newer", NULL, 0, 9, 0};
    const struct provider small = {8, "small", NULL, 0, 3, 0};
    uint32_t cut = 4;
    void *const tracepoints[2] = {NULL, &cut};
    /* A provider's constructor ends the program if it gets NULL. */
    if (!lttng_ust_probe_register(&newer) || !lttng_ust_probe_register(&small) || !lttng_ust_probe_register(NULL))
        return 1;
    return lttng_ust_tracepoint_module_register(tracepoints, 2);
}
