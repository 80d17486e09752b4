/*
 * A library in libtompion's place: it enables every site and writes down, line by line, what it is
 * told.
 *
 *     load | unload
 *     site KIND DESCRIPTION       the event's description with its enumerations, in hexadecimal
 *     event PROVIDER:NAME IMAGE TAIL...      each in hexadecimal, "-" if empty
 *
 * Lines go to the file that MOCK_OUT names, else to standard error. With MOCK_IDLE set, no site is
 * enabled; with MOCK_QUIET, events are counted and the number is written at the end ("events N").
 * It allocates nothing, so that it can stand below the malloc preload.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

#include <tompion/tompion.h>

static int out = 2, quiet, idle;
static atomic_ulong events;

struct line {
    size_t len;
    char text[16384];
};

static void flush(struct line *line)
{
    for (size_t done = 0; done < line->len;) {
        ssize_t n = write(out, line->text + done, line->len - done);
        if (n <= 0)
            _exit(99);
        done += (size_t)n;
    }
    line->len = 0;
}

static void put(struct line *line, const char *text)
{
    while (*text) {
        if (line->len == sizeof line->text)
            flush(line);
        line->text[line->len++] = *text++;
    }
}

static void put_hex(struct line *line, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = ((const unsigned char *)data)[i];
        put(line, (char[]){"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15], 0});
    }
}

/* Both kinds of description begin with a magic word and their size. */
static uint32_t size_at(const void *description)
{
    uint32_t size;
    memcpy(&size, (const char *)description + 4, 4);
    return size;
}

/* The number of `enum` fields: where a description keeps what is told in crates/schema. */
static unsigned enums_in(const unsigned char *description)
{
    unsigned enums = 0, fields = description[14];
    const unsigned char *field = description + 20 + description[16] + description[18];
    for (; fields > 0; fields--, field += field[0] | field[1] << 8)
        enums += field[2] == 21;
    return enums;
}

static void put_site(struct line *line, const struct tompion_site *site)
{
    unsigned enums = enums_in(site->description);
    put(line, site->kind ? "site 1 " : "site 0 ");
    put_hex(line, site->description, size_at(site->description));
    if ((enums != 0) != (site->enums != NULL))
        put(line, " enums?");
    for (unsigned i = 0; i < enums; i++)
        put_hex(line, site->enums[i], size_at(site->enums[i]));
    put(line, "\n");
}

static void append_tails(const struct tompion_site *site, const void *image, size_t image_size,
                         const struct tompion_tail *tails, size_t tail_count)
{
    const char *provider = (const char *)site->description + 20;
    struct line line;
    line.len = 0;
    events++;
    if (quiet)
        return;
    put(&line, "event ");
    put(&line, provider);
    put(&line, ":");
    put(&line, provider + strlen(provider) + 1);
    put(&line, image_size ? " " : " -");
    /* Up to the next multiple of 8 bytes there is nothing but zeros. */
    for (size_t i = image_size; i % 8; i++)
        if (((const char *)image)[i])
            put(&line, "gap?");
    put_hex(&line, image, image_size);
    for (size_t i = 0; i < tail_count; i++) {
        put(&line, tails[i].size ? " " : " -");
        put_hex(&line, tails[i].data, tails[i].size);
    }
    put(&line, "\n");
    flush(&line);
}

static void append(const struct tompion_site *site, const void *image, size_t image_size)
{
    append_tails(site, image, image_size, NULL, 0);
}

int tompion_agent_v1(struct tompion_module *module, uint32_t verb)
{
    static int modules;
    struct line line;
    const char *path = getenv("MOCK_OUT");
    line.len = 0;
    if (module->abi != TOMPION_ABI)
        return 1;
    if (path && out == 2)
        out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    quiet = getenv("MOCK_QUIET") != NULL;
    idle = getenv("MOCK_IDLE") != NULL;
    modules += verb ? 1 : -1;
    if (!quiet)
        put(&line, verb ? "load\n" : "unload\n");
    module->append = append;
    module->append_tails = append_tails;
    for (struct tompion_site *const *site = module->sites_begin; site != module->sites_end; site++) {
        if (verb && !quiet)
            put_site(&line, *site);
        __atomic_store_n(&(*site)->enabled, verb && !idle, __ATOMIC_RELAXED);
    }
    if (quiet && modules == 0) {
        char text[40];
        snprintf(text, sizeof text, "events %lu\n", (unsigned long)events);
        put(&line, text);
    }
    flush(&line);
    return 0;
}
