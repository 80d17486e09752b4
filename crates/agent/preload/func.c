/*
 * libtompion-func.so: entry and exit of functions, of programs compiled with
 * -finstrument-functions.
 *
 *     LD_PRELOAD=libtompion-func.so ./program          (`tompion record --preload func` does it)
 *
 * Built as malloc.c is.
 *
 * Events have the names and fields that LTTng's cyg-profile helper gives them. Addresses mean
 * something only to readers that know which file lies where. So the agent gets a description of
 * each executable and library before the first event with an address in it: of all that the program
 * begins with, and of a later library when an address in it is seen for the first time.
 *
 * An event costs two look-ups of pages that are known, without a lock. A page that isn't known
 * costs a look-up by the C library, which takes no lock either; the agent, which takes one, is
 * called once for an object. Once dlclose() has been called, the same addresses can be another
 * library's, so everything is looked up again; and while it runs nothing is known. dlopen() is not
 * wrapped: its result depends on its caller.
 *
 * Safe in signal handlers: nothing here is left half done. errno is kept.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define WRAPPER_IS_PASSIVE
#include "wrapper.h"

#define EXPORT __attribute__((visibility("default")))

/* -- What the agent takes -- */

struct loaded_object {
    uint64_t begin, size;
    const char *path;
    const void *build_id; /* or NULL */
    uint32_t build_id_size;
    uint32_t position_independent;
};

/* 0, or -1 where it can't be noted. */
int tompion_object_v1(const struct loaded_object *object) __attribute__((weak));

/* -- What is known -- */

/*
 * dlclose() calls: those that are at work in the lower 16 bits, above them those that are done.
 * Words of the tables below are valid for one value of it.
 */
static atomic_uint_least64_t closes;

#define CLOSES_AT_WORK 0xffff
#define PAGE_BITS 12
#define GENERATION_BITS 29 /* as many as are left over by the 35 bits of a page's number */

/* Pages by their numbers: page | generation. Each has two places. */
#define PLACES 4096
static atomic_uint_least64_t known_pages[PLACES], known_objects[PLACES];

static uint64_t word_of(uintptr_t address, uint64_t state)
{
    const uint64_t generation = state >> 16 & ((UINT64_C(1) << GENERATION_BITS) - 1);
    return (uint64_t)(address >> PAGE_BITS) << GENERATION_BITS | generation;
}

static size_t place_of(uintptr_t address)
{
    return (address >> PAGE_BITS) * 2 % PLACES;
}

/* Ordering: a word says all that there is to see. */
static int is_known(atomic_uint_least64_t *table, uintptr_t address, uint64_t word)
{
    atomic_uint_least64_t *place = &table[place_of(address)];
    return atomic_load_explicit(&place[0], memory_order_relaxed) == word ||
           atomic_load_explicit(&place[1], memory_order_relaxed) == word;
}

static void note(atomic_uint_least64_t *table, uintptr_t address, uint64_t word)
{
    atomic_uint_least64_t *place = &table[place_of(address)];
    const uint64_t before = atomic_exchange_explicit(&place[0], word, memory_order_relaxed);
    atomic_store_explicit(&place[1], before, memory_order_relaxed);
}

/* -- Objects -- */

static char executable[4096]; /* "" before the constructor */

/* The notes of a segment: where the build id is, or NULL. */
static const void *build_id_in(const char *notes, size_t size, uint32_t *id_size)
{
    size_t at = 0;
    while (size - at >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *head = (const void *)(notes + at);
        const size_t name = at + sizeof *head, id = name + ((size_t)head->n_namesz + 3) / 4 * 4;
        const size_t end = id + ((size_t)head->n_descsz + 3) / 4 * 4;
        if (id > size || end > size)
            return NULL;
        if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 && !memcmp(notes + name, "GNU", 4)) {
            *id_size = head->n_descsz;
            return notes + id;
        }
        at = end;
    }
    return NULL;
}

/* Tells the agent of an object that is loaded for as long as this takes: an address in it is in
 * use. */
static void tell(const struct dl_find_object *found)
{
    const ElfW(Ehdr) *head = found->dlfo_map_start;
    const uintptr_t begin = (uintptr_t)head, end = (uintptr_t)found->dlfo_map_end;
    const struct link_map *map = found->dlfo_link_map;
    struct loaded_object object = {begin, end - begin, map->l_name, NULL, 0, 0};
    if (!object.path || !*object.path)
        object.path = executable;
    if (end - begin >= sizeof *head && !memcmp(head->e_ident, ELFMAG, SELFMAG) &&
        head->e_phoff <= (1 << PAGE_BITS) - head->e_phnum * sizeof(ElfW(Phdr))) {
        const ElfW(Phdr) *segment = (const void *)(begin + head->e_phoff);
        object.position_independent = head->e_type == ET_DYN;
        for (int i = 0; i < head->e_phnum && !object.build_id; i++, segment++) {
            const uintptr_t notes = map->l_addr + segment->p_vaddr;
            if (segment->p_type == PT_NOTE && notes >= begin && notes < end && segment->p_memsz <= end - notes)
                object.build_id = build_id_in((const char *)notes, segment->p_memsz, &object.build_id_size);
        }
    }
    if (tompion_object_v1)
        tompion_object_v1(&object);
}

/* An address on a page that isn't known. */
static __attribute__((noinline, cold)) void find(uintptr_t address, uint64_t state)
{
    const int error = errno;
    struct dl_find_object found;
    if (_dl_find_object((void *)address, &found) == 0) {
        const uintptr_t begin = (uintptr_t)found.dlfo_map_start;
        const int can_be_known = (state & CLOSES_AT_WORK) == 0;
        if (!can_be_known || !is_known(known_objects, begin, word_of(begin, state))) {
            tell(&found);
            if (can_be_known)
                note(known_objects, begin, word_of(begin, state));
        }
        if (can_be_known)
            note(known_pages, address, word_of(address, state));
    }
    errno = error;
}

/* Returns the address, after the agent knows the object that it is in. */
static inline const void *known_address(const void *address)
{
    const uintptr_t number = (uintptr_t)address;
    /* Ordering: pairs with the release in dlclose(): a thread that runs code that was loaded
     * after it sees it. */
    const uint64_t state = atomic_load_explicit(&closes, memory_order_acquire);
    if (__builtin_expect((state & CLOSES_AT_WORK) != 0 || !is_known(known_pages, number, word_of(number, state)), 0))
        find(number, state);
    return address;
}

static int (*next_dlclose)(void *);

/* Behind the header's own, so that the agent is there. */
static __attribute__((constructor(102))) void tell_of_all(void)
{
    const ssize_t size = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[size < 0 ? 0 : size] = 0;
    next_dlclose = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
        known_address(map->l_ld);
}

/* -- What the program calls -- */

EXPORT int dlclose(void *handle)
{
    int (*next)(void *) = next_dlclose;
    int result;
    if (!next) /* before our constructor */
        next = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
    atomic_fetch_add_explicit(&closes, 1, memory_order_acq_rel);
    result = next(handle);
    atomic_fetch_add_explicit(&closes, (1 << 16) - 1, memory_order_acq_rel);
    return result;
}

EXPORT void __cyg_profile_func_enter(void *function, void *call_site)
{
    TOMPION_EVENT_LEVEL(DEBUG_FUNCTION, lttng_ust_cyg_profile, func_entry, (x64, addr, known_address(function)),
                        (x64, call_site, known_address(call_site)));
}

EXPORT void __cyg_profile_func_exit(void *function, void *call_site)
{
    TOMPION_EVENT_LEVEL(DEBUG_FUNCTION, lttng_ust_cyg_profile, func_exit, (x64, addr, known_address(function)),
                        (x64, call_site, known_address(call_site)));
}
