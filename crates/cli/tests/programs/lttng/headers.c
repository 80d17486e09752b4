/* Headers of LTTng-UST's that have no tracepoints: what they override is not there. */
#include <lttng/tracepoint.h>
#include <lttng/ust-clock.h>
#include <lttng/ust-error.h>
#include <lttng/ust-getcpu.h>

int main(void)
{
    if (caa_unlikely(lttng_ust_getcpu_override(0) != -ENOSYS) || !caa_likely(LTTNG_UST_ERR_NOENT == 1025))
        return 1;
    if (lttng_ust_trace_clock_set_read64_cb(0) != -ENOSYS || lttng_ust_enable_trace_clock_override() == 0)
        return 2;
    return lttng_ust_strerror(LTTNG_UST_OK)[0] != 'S';
}
