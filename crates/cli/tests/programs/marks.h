/*
 * Marks as <sys/sdt.h> leaves them in programs (USDT), which is not on every machine.
 */
#ifndef MARKS_H
#define MARKS_H

/* The instruction of a mark. */
#ifndef MARK_NOP
#define MARK_NOP "nop"
#endif

/* A note: address, base, counter of listeners ("0" for none); provider, name, arguments. */
#define MARK(provider, name, counter, arguments, ...)                                                                  \
    asm volatile("990: " MARK_NOP "\n"                                                                                 \
                 ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                          \
                 ".balign 4\n"                                                                                         \
                 ".4byte 992f-991f, 994f-993f, 3\n"                                                                    \
                 "991: .asciz \"stapsdt\"\n"                                                                           \
                 "992: .balign 4\n"                                                                                    \
                 "993: .8byte 990b, _.stapsdt.base, " counter "\n"                                                     \
                 ".asciz \"" provider "\"\n"                                                                           \
                 ".asciz \"" name "\"\n"                                                                               \
                 ".asciz \"" arguments "\"\n"                                                                          \
                 "994: .balign 4\n"                                                                                    \
                 ".popsection\n" ::__VA_ARGS__)

asm(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
    ".weak _.stapsdt.base\n"
    ".hidden _.stapsdt.base\n"
    "_.stapsdt.base: .space 1\n"
    ".size _.stapsdt.base, 1\n"
    ".popsection\n");

/* A counter that the kernel raises while marks with its name have a listener. */
#define LISTENERS(name) __attribute__((section(".probes"), visibility("hidden"))) volatile unsigned short name

#endif
