/*
 * A part of the program: of the executable itself, of a static library, of a shared library, whose
 * name is PART. All parts have some events in common, with one description; and one name that each
 * uses for something else, with a description of its own.
 */
#include "state.h"

#define JOIN(a, b) JOIN_(a, b)
#define JOIN_(a, b) a##b
#define TEXT(a) TEXT_(a)
#define TEXT_(a) #a
#define NAMED "\"part\":\"" TEXT(PART) "\""

__attribute__((__constructor__)) static void begin(void)
{
    TOMPION_EVENT(part, constructor, (str, part, TEXT(PART)));
    state("part:constructor", NAMED);
}

__attribute__((__destructor__)) static void end(void)
{
    TOMPION_EVENT(part, destructor, (str, part, TEXT(PART)));
    state("part:destructor", NAMED);
}

static void clash(void)
{
#if CLASH == 1
    TOMPION_EVENT(part, clash, (u32, value, 1));
    state("part:clash", "\"value\":1");
#elif CLASH == 2
    TOMPION_EVENT(part, clash, (str, value, "two"));
    state("part:clash", "\"value\":\"two\"");
#else
    TOMPION_EVENT(part, clash, (u8, more, 3), (u32, value, 1));
    state("part:clash", "\"more\":3,\"value\":1");
#endif
}

void JOIN(part_, PART)(void)
{
    TOMPION_SPAN(part, work, (str, part, TEXT(PART)));
    state("part:work_begin", NAMED);
    clash();
    TOMPION_MARK(part, "in %s", TEXT(PART));
    state("mark:part", "\"in\":\"" TEXT(PART) "\"");
    clash();
    state("part:work_end", "");
}

/* It is never called: the linker may discard it. */
void JOIN(unused_, PART)(void);
void JOIN(unused_, PART)(void)
{
    TOMPION_EVENT(part, unused, (str, part, TEXT(PART)));
    TOMPION_SPAN(part, unused_span);
}
