/*
 * What all preloaded libraries have in common. It includes <tompion/tompion.h>.
 */
#ifndef TOMPION_WRAPPER_H
#define TOMPION_WRAPPER_H

#ifdef WRAPPER_IS_PASSIVE
/* The program did not ask for these events: they are no reason for a thread in it. */
#define TOMPION_PRIV_MODULE_FLAGS TOMPION_PASSIVE
#endif

#include <tompion/tompion.h>

/*
 * Reached without a call. ThreadSanitizer has a __tls_get_addr of its own, which can't be called
 * while it looks for the functions that it wraps; and it allocates while it does.
 */
#define THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

/*
 * AddressSanitizer's library ends programs in which another one comes first. Its functions needn't:
 * those of these libraries call the next ones, which are its own. This function, which it looks
 * for, gives it its options. A program's own one comes before; then that program has to say
 * verify_asan_link_order=0 itself.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "verify_asan_link_order=0";
}

#endif
