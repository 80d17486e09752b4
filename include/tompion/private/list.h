/*
 * Lists: what is done for each field of an event, each member of a structure, each argument of a
 * mark.
 *
 * Part of <tompion/tompion.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_PRIVATE_LIST_H
#define TOMPION_PRIVATE_LIST_H

#pragma GCC system_header

/*
 * Words must not be expanded: they may be `linux`, `errno` or `bool`. An operand of ## never is, so
 * every macro passes words on by ##: lists by `, ##__VA_ARGS__`, single parameters by e##word,
 * where e is an empty argument handed through for that purpose. The macros that meet a word at last
 * use it only with
 * # and ##.
 */

/* The number of items, 0 to 64. */
#define TOMPION_PRIV_COUNT(e, ...) \
    TOMPION_PRIV_COUNT_OF(e, ##__VA_ARGS__, \
        64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, \
        41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, \
        18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define TOMPION_PRIV_COUNT_OF(e, \
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, \
        a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, \
        a39, a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, \
        a57, a58, a59, a60, a61, a62, a63, a64, n, ...) n

/*
 * TOMPION_PRIV_EACH(m, e, (a), (b)...) is m(a) m(b)..., nothing if there is no item. A macro does
 * not expand within itself, so each level of structures has lists of its own.
 */
#define TOMPION_PRIV_EACH(m, e, ...) \
    TOMPION_PRIV_EACH_N(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__), m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_N(n, m, e, ...) TOMPION_PRIV_EACH_OF(n, m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_OF(n, m, e, ...) TOMPION_PRIV_E##n(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_2(m, e, ...) \
    TOMPION_PRIV_EACH_2_N(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__), m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_2_N(n, m, e, ...) TOMPION_PRIV_EACH_2_OF(n, m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_2_OF(n, m, e, ...) TOMPION_PRIV_F##n(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_3(m, e, ...) \
    TOMPION_PRIV_EACH_3_N(TOMPION_PRIV_COUNT(e, ##__VA_ARGS__), m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_3_N(n, m, e, ...) TOMPION_PRIV_EACH_3_OF(n, m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_EACH_3_OF(n, m, e, ...) TOMPION_PRIV_G##n(m, e, ##__VA_ARGS__)

#define TOMPION_PRIV_E0(m, e)
#define TOMPION_PRIV_E1(m, e, x) m e##x
#define TOMPION_PRIV_E2(m, e, x, ...) m e##x TOMPION_PRIV_E1(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E3(m, e, x, ...) m e##x TOMPION_PRIV_E2(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E4(m, e, x, ...) m e##x TOMPION_PRIV_E3(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E5(m, e, x, ...) m e##x TOMPION_PRIV_E4(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E6(m, e, x, ...) m e##x TOMPION_PRIV_E5(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E7(m, e, x, ...) m e##x TOMPION_PRIV_E6(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E8(m, e, x, ...) m e##x TOMPION_PRIV_E7(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E9(m, e, x, ...) m e##x TOMPION_PRIV_E8(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E10(m, e, x, ...) m e##x TOMPION_PRIV_E9(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E11(m, e, x, ...) m e##x TOMPION_PRIV_E10(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E12(m, e, x, ...) m e##x TOMPION_PRIV_E11(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E13(m, e, x, ...) m e##x TOMPION_PRIV_E12(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E14(m, e, x, ...) m e##x TOMPION_PRIV_E13(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E15(m, e, x, ...) m e##x TOMPION_PRIV_E14(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E16(m, e, x, ...) m e##x TOMPION_PRIV_E15(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E17(m, e, x, ...) m e##x TOMPION_PRIV_E16(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E18(m, e, x, ...) m e##x TOMPION_PRIV_E17(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E19(m, e, x, ...) m e##x TOMPION_PRIV_E18(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E20(m, e, x, ...) m e##x TOMPION_PRIV_E19(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E21(m, e, x, ...) m e##x TOMPION_PRIV_E20(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E22(m, e, x, ...) m e##x TOMPION_PRIV_E21(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E23(m, e, x, ...) m e##x TOMPION_PRIV_E22(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E24(m, e, x, ...) m e##x TOMPION_PRIV_E23(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E25(m, e, x, ...) m e##x TOMPION_PRIV_E24(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E26(m, e, x, ...) m e##x TOMPION_PRIV_E25(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E27(m, e, x, ...) m e##x TOMPION_PRIV_E26(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E28(m, e, x, ...) m e##x TOMPION_PRIV_E27(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E29(m, e, x, ...) m e##x TOMPION_PRIV_E28(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E30(m, e, x, ...) m e##x TOMPION_PRIV_E29(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E31(m, e, x, ...) m e##x TOMPION_PRIV_E30(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E32(m, e, x, ...) m e##x TOMPION_PRIV_E31(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E33(m, e, x, ...) m e##x TOMPION_PRIV_E32(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E34(m, e, x, ...) m e##x TOMPION_PRIV_E33(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E35(m, e, x, ...) m e##x TOMPION_PRIV_E34(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E36(m, e, x, ...) m e##x TOMPION_PRIV_E35(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E37(m, e, x, ...) m e##x TOMPION_PRIV_E36(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E38(m, e, x, ...) m e##x TOMPION_PRIV_E37(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E39(m, e, x, ...) m e##x TOMPION_PRIV_E38(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E40(m, e, x, ...) m e##x TOMPION_PRIV_E39(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E41(m, e, x, ...) m e##x TOMPION_PRIV_E40(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E42(m, e, x, ...) m e##x TOMPION_PRIV_E41(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E43(m, e, x, ...) m e##x TOMPION_PRIV_E42(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E44(m, e, x, ...) m e##x TOMPION_PRIV_E43(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E45(m, e, x, ...) m e##x TOMPION_PRIV_E44(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E46(m, e, x, ...) m e##x TOMPION_PRIV_E45(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E47(m, e, x, ...) m e##x TOMPION_PRIV_E46(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E48(m, e, x, ...) m e##x TOMPION_PRIV_E47(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E49(m, e, x, ...) m e##x TOMPION_PRIV_E48(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E50(m, e, x, ...) m e##x TOMPION_PRIV_E49(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E51(m, e, x, ...) m e##x TOMPION_PRIV_E50(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E52(m, e, x, ...) m e##x TOMPION_PRIV_E51(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E53(m, e, x, ...) m e##x TOMPION_PRIV_E52(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E54(m, e, x, ...) m e##x TOMPION_PRIV_E53(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E55(m, e, x, ...) m e##x TOMPION_PRIV_E54(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E56(m, e, x, ...) m e##x TOMPION_PRIV_E55(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E57(m, e, x, ...) m e##x TOMPION_PRIV_E56(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E58(m, e, x, ...) m e##x TOMPION_PRIV_E57(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E59(m, e, x, ...) m e##x TOMPION_PRIV_E58(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E60(m, e, x, ...) m e##x TOMPION_PRIV_E59(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E61(m, e, x, ...) m e##x TOMPION_PRIV_E60(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E62(m, e, x, ...) m e##x TOMPION_PRIV_E61(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E63(m, e, x, ...) m e##x TOMPION_PRIV_E62(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_E64(m, e, x, ...) m e##x TOMPION_PRIV_E63(m, e, ##__VA_ARGS__)

#define TOMPION_PRIV_F0(m, e)
#define TOMPION_PRIV_F1(m, e, x) m e##x
#define TOMPION_PRIV_F2(m, e, x, ...) m e##x TOMPION_PRIV_F1(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F3(m, e, x, ...) m e##x TOMPION_PRIV_F2(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F4(m, e, x, ...) m e##x TOMPION_PRIV_F3(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F5(m, e, x, ...) m e##x TOMPION_PRIV_F4(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F6(m, e, x, ...) m e##x TOMPION_PRIV_F5(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F7(m, e, x, ...) m e##x TOMPION_PRIV_F6(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F8(m, e, x, ...) m e##x TOMPION_PRIV_F7(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F9(m, e, x, ...) m e##x TOMPION_PRIV_F8(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F10(m, e, x, ...) m e##x TOMPION_PRIV_F9(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F11(m, e, x, ...) m e##x TOMPION_PRIV_F10(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F12(m, e, x, ...) m e##x TOMPION_PRIV_F11(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F13(m, e, x, ...) m e##x TOMPION_PRIV_F12(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F14(m, e, x, ...) m e##x TOMPION_PRIV_F13(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F15(m, e, x, ...) m e##x TOMPION_PRIV_F14(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F16(m, e, x, ...) m e##x TOMPION_PRIV_F15(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F17(m, e, x, ...) m e##x TOMPION_PRIV_F16(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F18(m, e, x, ...) m e##x TOMPION_PRIV_F17(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F19(m, e, x, ...) m e##x TOMPION_PRIV_F18(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F20(m, e, x, ...) m e##x TOMPION_PRIV_F19(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F21(m, e, x, ...) m e##x TOMPION_PRIV_F20(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F22(m, e, x, ...) m e##x TOMPION_PRIV_F21(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F23(m, e, x, ...) m e##x TOMPION_PRIV_F22(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F24(m, e, x, ...) m e##x TOMPION_PRIV_F23(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F25(m, e, x, ...) m e##x TOMPION_PRIV_F24(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F26(m, e, x, ...) m e##x TOMPION_PRIV_F25(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F27(m, e, x, ...) m e##x TOMPION_PRIV_F26(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F28(m, e, x, ...) m e##x TOMPION_PRIV_F27(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F29(m, e, x, ...) m e##x TOMPION_PRIV_F28(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F30(m, e, x, ...) m e##x TOMPION_PRIV_F29(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F31(m, e, x, ...) m e##x TOMPION_PRIV_F30(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F32(m, e, x, ...) m e##x TOMPION_PRIV_F31(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F33(m, e, x, ...) m e##x TOMPION_PRIV_F32(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F34(m, e, x, ...) m e##x TOMPION_PRIV_F33(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F35(m, e, x, ...) m e##x TOMPION_PRIV_F34(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F36(m, e, x, ...) m e##x TOMPION_PRIV_F35(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F37(m, e, x, ...) m e##x TOMPION_PRIV_F36(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F38(m, e, x, ...) m e##x TOMPION_PRIV_F37(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F39(m, e, x, ...) m e##x TOMPION_PRIV_F38(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F40(m, e, x, ...) m e##x TOMPION_PRIV_F39(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F41(m, e, x, ...) m e##x TOMPION_PRIV_F40(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F42(m, e, x, ...) m e##x TOMPION_PRIV_F41(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F43(m, e, x, ...) m e##x TOMPION_PRIV_F42(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F44(m, e, x, ...) m e##x TOMPION_PRIV_F43(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F45(m, e, x, ...) m e##x TOMPION_PRIV_F44(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F46(m, e, x, ...) m e##x TOMPION_PRIV_F45(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F47(m, e, x, ...) m e##x TOMPION_PRIV_F46(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F48(m, e, x, ...) m e##x TOMPION_PRIV_F47(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F49(m, e, x, ...) m e##x TOMPION_PRIV_F48(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F50(m, e, x, ...) m e##x TOMPION_PRIV_F49(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F51(m, e, x, ...) m e##x TOMPION_PRIV_F50(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F52(m, e, x, ...) m e##x TOMPION_PRIV_F51(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F53(m, e, x, ...) m e##x TOMPION_PRIV_F52(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F54(m, e, x, ...) m e##x TOMPION_PRIV_F53(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F55(m, e, x, ...) m e##x TOMPION_PRIV_F54(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F56(m, e, x, ...) m e##x TOMPION_PRIV_F55(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F57(m, e, x, ...) m e##x TOMPION_PRIV_F56(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F58(m, e, x, ...) m e##x TOMPION_PRIV_F57(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F59(m, e, x, ...) m e##x TOMPION_PRIV_F58(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F60(m, e, x, ...) m e##x TOMPION_PRIV_F59(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F61(m, e, x, ...) m e##x TOMPION_PRIV_F60(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F62(m, e, x, ...) m e##x TOMPION_PRIV_F61(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F63(m, e, x, ...) m e##x TOMPION_PRIV_F62(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_F64(m, e, x, ...) m e##x TOMPION_PRIV_F63(m, e, ##__VA_ARGS__)

#define TOMPION_PRIV_G0(m, e)
#define TOMPION_PRIV_G1(m, e, x) m e##x
#define TOMPION_PRIV_G2(m, e, x, ...) m e##x TOMPION_PRIV_G1(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G3(m, e, x, ...) m e##x TOMPION_PRIV_G2(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G4(m, e, x, ...) m e##x TOMPION_PRIV_G3(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G5(m, e, x, ...) m e##x TOMPION_PRIV_G4(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G6(m, e, x, ...) m e##x TOMPION_PRIV_G5(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G7(m, e, x, ...) m e##x TOMPION_PRIV_G6(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G8(m, e, x, ...) m e##x TOMPION_PRIV_G7(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G9(m, e, x, ...) m e##x TOMPION_PRIV_G8(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G10(m, e, x, ...) m e##x TOMPION_PRIV_G9(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G11(m, e, x, ...) m e##x TOMPION_PRIV_G10(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G12(m, e, x, ...) m e##x TOMPION_PRIV_G11(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G13(m, e, x, ...) m e##x TOMPION_PRIV_G12(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G14(m, e, x, ...) m e##x TOMPION_PRIV_G13(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G15(m, e, x, ...) m e##x TOMPION_PRIV_G14(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G16(m, e, x, ...) m e##x TOMPION_PRIV_G15(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G17(m, e, x, ...) m e##x TOMPION_PRIV_G16(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G18(m, e, x, ...) m e##x TOMPION_PRIV_G17(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G19(m, e, x, ...) m e##x TOMPION_PRIV_G18(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G20(m, e, x, ...) m e##x TOMPION_PRIV_G19(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G21(m, e, x, ...) m e##x TOMPION_PRIV_G20(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G22(m, e, x, ...) m e##x TOMPION_PRIV_G21(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G23(m, e, x, ...) m e##x TOMPION_PRIV_G22(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G24(m, e, x, ...) m e##x TOMPION_PRIV_G23(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G25(m, e, x, ...) m e##x TOMPION_PRIV_G24(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G26(m, e, x, ...) m e##x TOMPION_PRIV_G25(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G27(m, e, x, ...) m e##x TOMPION_PRIV_G26(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G28(m, e, x, ...) m e##x TOMPION_PRIV_G27(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G29(m, e, x, ...) m e##x TOMPION_PRIV_G28(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G30(m, e, x, ...) m e##x TOMPION_PRIV_G29(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G31(m, e, x, ...) m e##x TOMPION_PRIV_G30(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G32(m, e, x, ...) m e##x TOMPION_PRIV_G31(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G33(m, e, x, ...) m e##x TOMPION_PRIV_G32(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G34(m, e, x, ...) m e##x TOMPION_PRIV_G33(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G35(m, e, x, ...) m e##x TOMPION_PRIV_G34(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G36(m, e, x, ...) m e##x TOMPION_PRIV_G35(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G37(m, e, x, ...) m e##x TOMPION_PRIV_G36(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G38(m, e, x, ...) m e##x TOMPION_PRIV_G37(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G39(m, e, x, ...) m e##x TOMPION_PRIV_G38(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G40(m, e, x, ...) m e##x TOMPION_PRIV_G39(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G41(m, e, x, ...) m e##x TOMPION_PRIV_G40(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G42(m, e, x, ...) m e##x TOMPION_PRIV_G41(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G43(m, e, x, ...) m e##x TOMPION_PRIV_G42(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G44(m, e, x, ...) m e##x TOMPION_PRIV_G43(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G45(m, e, x, ...) m e##x TOMPION_PRIV_G44(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G46(m, e, x, ...) m e##x TOMPION_PRIV_G45(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G47(m, e, x, ...) m e##x TOMPION_PRIV_G46(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G48(m, e, x, ...) m e##x TOMPION_PRIV_G47(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G49(m, e, x, ...) m e##x TOMPION_PRIV_G48(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G50(m, e, x, ...) m e##x TOMPION_PRIV_G49(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G51(m, e, x, ...) m e##x TOMPION_PRIV_G50(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G52(m, e, x, ...) m e##x TOMPION_PRIV_G51(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G53(m, e, x, ...) m e##x TOMPION_PRIV_G52(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G54(m, e, x, ...) m e##x TOMPION_PRIV_G53(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G55(m, e, x, ...) m e##x TOMPION_PRIV_G54(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G56(m, e, x, ...) m e##x TOMPION_PRIV_G55(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G57(m, e, x, ...) m e##x TOMPION_PRIV_G56(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G58(m, e, x, ...) m e##x TOMPION_PRIV_G57(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G59(m, e, x, ...) m e##x TOMPION_PRIV_G58(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G60(m, e, x, ...) m e##x TOMPION_PRIV_G59(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G61(m, e, x, ...) m e##x TOMPION_PRIV_G60(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G62(m, e, x, ...) m e##x TOMPION_PRIV_G61(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G63(m, e, x, ...) m e##x TOMPION_PRIV_G62(m, e, ##__VA_ARGS__)
#define TOMPION_PRIV_G64(m, e, x, ...) m e##x TOMPION_PRIV_G63(m, e, ##__VA_ARGS__)

/*
 * TOMPION_PRIV_ARGUMENTS(m, a, b...) is m(1, a) m(2, b)..., for 0 to 32 expressions, which are
 * expanded.
 */
#define TOMPION_PRIV_ARGUMENTS(m, ...) \
    TOMPION_PRIV_ARGUMENTS_N(TOMPION_PRIV_COUNT(, ##__VA_ARGS__), m, ##__VA_ARGS__)
#define TOMPION_PRIV_ARGUMENTS_N(n, m, ...) TOMPION_PRIV_ARGUMENTS_OF(n, m, ##__VA_ARGS__)
#define TOMPION_PRIV_ARGUMENTS_OF(n, m, ...) TOMPION_PRIV_A##n(m, 1, ##__VA_ARGS__)
#define TOMPION_PRIV_NEXT(i) TOMPION_PRIV_JOIN(TOMPION_PRIV_NEXT_, i)

#define TOMPION_PRIV_A0(m, i)
#define TOMPION_PRIV_A1(m, i, x) m(i, x)
#define TOMPION_PRIV_A2(m, i, x, ...) m(i, x) TOMPION_PRIV_A1(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A3(m, i, x, ...) m(i, x) TOMPION_PRIV_A2(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A4(m, i, x, ...) m(i, x) TOMPION_PRIV_A3(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A5(m, i, x, ...) m(i, x) TOMPION_PRIV_A4(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A6(m, i, x, ...) m(i, x) TOMPION_PRIV_A5(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A7(m, i, x, ...) m(i, x) TOMPION_PRIV_A6(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A8(m, i, x, ...) m(i, x) TOMPION_PRIV_A7(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A9(m, i, x, ...) m(i, x) TOMPION_PRIV_A8(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A10(m, i, x, ...) m(i, x) TOMPION_PRIV_A9(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A11(m, i, x, ...) m(i, x) TOMPION_PRIV_A10(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A12(m, i, x, ...) m(i, x) TOMPION_PRIV_A11(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A13(m, i, x, ...) m(i, x) TOMPION_PRIV_A12(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A14(m, i, x, ...) m(i, x) TOMPION_PRIV_A13(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A15(m, i, x, ...) m(i, x) TOMPION_PRIV_A14(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A16(m, i, x, ...) m(i, x) TOMPION_PRIV_A15(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A17(m, i, x, ...) m(i, x) TOMPION_PRIV_A16(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A18(m, i, x, ...) m(i, x) TOMPION_PRIV_A17(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A19(m, i, x, ...) m(i, x) TOMPION_PRIV_A18(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A20(m, i, x, ...) m(i, x) TOMPION_PRIV_A19(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A21(m, i, x, ...) m(i, x) TOMPION_PRIV_A20(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A22(m, i, x, ...) m(i, x) TOMPION_PRIV_A21(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A23(m, i, x, ...) m(i, x) TOMPION_PRIV_A22(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A24(m, i, x, ...) m(i, x) TOMPION_PRIV_A23(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A25(m, i, x, ...) m(i, x) TOMPION_PRIV_A24(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A26(m, i, x, ...) m(i, x) TOMPION_PRIV_A25(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A27(m, i, x, ...) m(i, x) TOMPION_PRIV_A26(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A28(m, i, x, ...) m(i, x) TOMPION_PRIV_A27(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A29(m, i, x, ...) m(i, x) TOMPION_PRIV_A28(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A30(m, i, x, ...) m(i, x) TOMPION_PRIV_A29(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A31(m, i, x, ...) m(i, x) TOMPION_PRIV_A30(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)
#define TOMPION_PRIV_A32(m, i, x, ...) m(i, x) TOMPION_PRIV_A31(m, TOMPION_PRIV_NEXT(i), ##__VA_ARGS__)

#define TOMPION_PRIV_NEXT_1 2
#define TOMPION_PRIV_NEXT_2 3
#define TOMPION_PRIV_NEXT_3 4
#define TOMPION_PRIV_NEXT_4 5
#define TOMPION_PRIV_NEXT_5 6
#define TOMPION_PRIV_NEXT_6 7
#define TOMPION_PRIV_NEXT_7 8
#define TOMPION_PRIV_NEXT_8 9
#define TOMPION_PRIV_NEXT_9 10
#define TOMPION_PRIV_NEXT_10 11
#define TOMPION_PRIV_NEXT_11 12
#define TOMPION_PRIV_NEXT_12 13
#define TOMPION_PRIV_NEXT_13 14
#define TOMPION_PRIV_NEXT_14 15
#define TOMPION_PRIV_NEXT_15 16
#define TOMPION_PRIV_NEXT_16 17
#define TOMPION_PRIV_NEXT_17 18
#define TOMPION_PRIV_NEXT_18 19
#define TOMPION_PRIV_NEXT_19 20
#define TOMPION_PRIV_NEXT_20 21
#define TOMPION_PRIV_NEXT_21 22
#define TOMPION_PRIV_NEXT_22 23
#define TOMPION_PRIV_NEXT_23 24
#define TOMPION_PRIV_NEXT_24 25
#define TOMPION_PRIV_NEXT_25 26
#define TOMPION_PRIV_NEXT_26 27
#define TOMPION_PRIV_NEXT_27 28
#define TOMPION_PRIV_NEXT_28 29
#define TOMPION_PRIV_NEXT_29 30
#define TOMPION_PRIV_NEXT_30 31
#define TOMPION_PRIV_NEXT_31 32

/* Puts two names together. */
#define TOMPION_PRIV_JOIN(a, b) TOMPION_PRIV_JOIN_(a, b)
#define TOMPION_PRIV_JOIN_(a, b) a##b

#endif /* TOMPION_PRIVATE_LIST_H */
