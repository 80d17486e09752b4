/*
 * The executable or shared object: it introduces itself to the library, and takes itself back.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_MODULE_H
#define TOMPION_PRIVATE_MODULE_H

#pragma GCC system_header

#ifdef TOMPION_OPTIONAL
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/auxv.h>
#endif

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TOMPION_PRIV_INLINE \
    static __inline__ __attribute__((__always_inline__, __unused__, __no_instrument_function__))
#define TOMPION_PRIV_HIDDEN __attribute__((__weak__, __visibility__("hidden")))

/* The section of pointers to sites, whose bounds the linker knows. */
extern struct tompion_site *const __start_tompion_sites[] TOMPION_PRIV_HIDDEN;
extern struct tompion_site *const __stop_tompion_sites[] TOMPION_PRIV_HIDDEN;

/* Flags of this object; the libraries in crates/agent/preload define others. */
#ifndef TOMPION_PRIV_MODULE_FLAGS
#define TOMPION_PRIV_MODULE_FLAGS 0
#endif

extern struct tompion_module tompion_module_v1 TOMPION_PRIV_HIDDEN;
struct tompion_module tompion_module_v1 = {
    TOMPION_ABI, 0, __start_tompion_sites, __stop_tompion_sites, 0, 0, 0, 0, TOMPION_PRIV_MODULE_FLAGS, {0},
};

/* The library's function, from the first constructor to the last destructor; or NULL. */
extern int (*tompion_priv_agent)(struct tompion_module *module, uint32_t verb) TOMPION_PRIV_HIDDEN;
int (*tompion_priv_agent)(struct tompion_module *module, uint32_t verb) = 0;

#ifdef TOMPION_OPTIONAL
extern int (*tompion_priv_context)(const char *name, uint32_t type, void *get) TOMPION_PRIV_HIDDEN;
int (*tompion_priv_context)(const char *name, uint32_t type, void *get) = 0;

extern int (*tompion_priv_state_dump)(const struct tompion_module *module, uint32_t verb,
                                      void (*dump)(void *data), void *data) TOMPION_PRIV_HIDDEN;
int (*tompion_priv_state_dump)(const struct tompion_module *module, uint32_t verb,
                               void (*dump)(void *data), void *data) = 0;

/* Finds the library's functions, in a library that was linked or is loaded now. */
static void tompion_priv_find(void)
{
    void *library = 0;
    const char *path = getenv("TOMPION_LIBRARY");
    tompion_priv_agent = tompion_agent_v1;
    tompion_priv_context = tompion_context_v1;
    tompion_priv_state_dump = tompion_state_dump_v1;
    if (tompion_priv_agent || !(getenv("TOMPION_SESSION") || getenv("TOMPION_RECORD")))
        return;
    /* `tompion record` says where it is; to a set-user-ID program any user could say so. */
    if (path && !getauxval(AT_SECURE))
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        library = dlopen("libtompion.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (library) {
        *(void **)&tompion_priv_agent = dlsym(library, "tompion_agent_v1");
        *(void **)&tompion_priv_context = dlsym(library, "tompion_context_v1");
        *(void **)&tompion_priv_state_dump = dlsym(library, "tompion_state_dump_v1");
    }
}
#else
static __inline__ void tompion_priv_find(void)
{
    tompion_priv_agent = tompion_agent_v1;
}
#define tompion_priv_context tompion_context_v1
#define tompion_priv_state_dump tompion_state_dump_v1
#endif

/* Before the program's own constructors: each file's calls this, the first one registers. */
__attribute__((__constructor__(101))) static void tompion_priv_load(void)
{
    if (tompion_module_v1.registered++ != 0)
        return;
    tompion_priv_find();
    if (tompion_priv_agent && tompion_priv_agent(&tompion_module_v1, TOMPION_LOAD) != 0)
        tompion_priv_agent = 0;
}

/* After the program's own destructors: the last one takes the object back. */
__attribute__((__destructor__(101))) static void tompion_priv_unload(void)
{
    if (--tompion_module_v1.registered == 0 && tompion_priv_agent)
        tompion_priv_agent(&tompion_module_v1, TOMPION_UNLOAD);
}

#ifdef __cplusplus
}
#endif

#endif /* TOMPION_PRIVATE_MODULE_H */
