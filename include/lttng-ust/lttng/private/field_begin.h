/*
 * Fields of providers: what the words for them mean while a provider is read. field_end.h takes
 * them back.
 *
 * Part of <lttng/tracepoint-event.h>; not to be included by itself.
 *
 * A word such as lttng_ust_field_integer becomes a list in parentheses: its kind, its name as text,
 * its value, and what else the kind needs. tracepoint-event.h goes over these lists several times.
 * The name is made a text at once: as a word it might be a macro. A field that is only for filters
 * (`_nowrite`), and one that is unused, has no record; its value is not evaluated.
 *
 *     tompion_none        value
 *     tompion_integer     name, value, type, base, flags
 *     tompion_float       name, value, type
 *     tompion_enum        name, value, type, provider, enumeration
 *     tompion_string      name, value
 *     tompion_array       name, value, type, length, base, flags
 *     tompion_array_text  name, value, length
 *     tompion_sequence    name, value, type, length's type, length, base, flags
 *     tompion_sequence_text  name, value, length's type, length
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#pragma GCC system_header

#define LTTNG_UST_TP_FIELDS(...) __VA_ARGS__
#define LTTNG_UST_TP_ENUM_VALUES(...) __VA_ARGS__

#define lttng_ust_field_integer(t, n, e) (tompion_integer, #n, e, t, 10, 0)
#define lttng_ust_field_integer_hex(t, n, e) (tompion_integer, #n, e, t, 16, 0)
#define lttng_ust_field_integer_network(t, n, e) (tompion_integer, #n, e, t, 10, 1)
#define lttng_ust_field_integer_network_hex(t, n, e) (tompion_integer, #n, e, t, 16, 1)
#define lttng_ust_field_float(t, n, e) (tompion_float, #n, e, t)
#define lttng_ust_field_enum(p, enumeration, t, n, e) (tompion_enum, #n, e, t, p, enumeration)
#define lttng_ust_field_string(n, e) (tompion_string, #n, e)
#define lttng_ust_field_array(t, n, e, len) (tompion_array, #n, e, t, len, 10, 0)
#define lttng_ust_field_array_hex(t, n, e, len) (tompion_array, #n, e, t, len, 16, 0)
#define lttng_ust_field_array_network(t, n, e, len) \
    (tompion_array, #n, e, t, len, 10, 1)
#define lttng_ust_field_array_network_hex(t, n, e, len) \
    (tompion_array, #n, e, t, len, 16, 1)
#define lttng_ust_field_array_text(t, n, e, len) (tompion_array_text, #n, e, len)
#define lttng_ust_field_sequence(t, n, e, lt, len) \
    (tompion_sequence, #n, e, t, lt, len, 10, 0)
#define lttng_ust_field_sequence_hex(t, n, e, lt, len) \
    (tompion_sequence, #n, e, t, lt, len, 16, 0)
#define lttng_ust_field_sequence_network(t, n, e, lt, len) \
    (tompion_sequence, #n, e, t, lt, len, 10, 1)
#define lttng_ust_field_sequence_network_hex(t, n, e, lt, len) \
    (tompion_sequence, #n, e, t, lt, len, 16, 1)
#define lttng_ust_field_sequence_text(t, n, e, lt, len) (tompion_sequence_text, #n, e, lt, len)
#define lttng_ust_field_fixed_length_blob(n, e, len, media) \
    (tompion_array, #n, e, unsigned char, len, 16, 0)
#define lttng_ust_field_variable_length_blob(n, e, lt, len, media) \
    (tompion_sequence, #n, e, unsigned char, lt, len, 16, 0)
#define lttng_ust_field_unused(e) (tompion_none, e)

#define lttng_ust_field_integer_nowrite(t, n, e) (tompion_none, e)
#define lttng_ust_field_float_nowrite(t, n, e) (tompion_none, e)
#define lttng_ust_field_enum_nowrite(p, enumeration, t, n, e) (tompion_none, e)
#define lttng_ust_field_string_nowrite(n, e) (tompion_none, e)
#define lttng_ust_field_array_nowrite(t, n, e, len) (tompion_none, e)
#define lttng_ust_field_array_nowrite_hex(t, n, e, len) (tompion_none, e)
#define lttng_ust_field_array_network_nowrite(t, n, e, len) (tompion_none, e)
#define lttng_ust_field_array_network_nowrite_hex(t, n, e, len) (tompion_none, e)
#define lttng_ust_field_array_text_nowrite(t, n, e, len) (tompion_none, e)
#define lttng_ust_field_sequence_nowrite(t, n, e, lt, len) (tompion_none, e)
#define lttng_ust_field_sequence_nowrite_hex(t, n, e, lt, len) (tompion_none, e)
#define lttng_ust_field_sequence_network_nowrite(t, n, e, lt, len) (tompion_none, e)
#define lttng_ust_field_sequence_network_nowrite_hex(t, n, e, lt, len) (tompion_none, e)
#define lttng_ust_field_sequence_text_nowrite(t, n, e, lt, len) (tompion_none, e)
#define lttng_ust_field_fixed_length_blob_nowrite(n, e, len, media) (tompion_none, e)
#define lttng_ust_field_variable_length_blob_nowrite(n, e, lt, len, media) (tompion_none, e)
#define lttng_ust_field_unused_nowrite(e) (tompion_none, e)

/* Labels: text, flags, first and last value. */
#define lttng_ust_field_enum_value(s, v) (s, 0, v, v)
#define lttng_ust_field_enum_range(s, low, high) (s, 0, low, high)
#define lttng_ust_field_enum_auto(s) (s, 1, 0, 0)

#if TOMPION_LTTNG_OLD_NAMES

#define TP_FIELDS LTTNG_UST_TP_FIELDS
#define TP_ENUM_VALUES LTTNG_UST_TP_ENUM_VALUES

#define ctf_integer lttng_ust_field_integer
#define ctf_integer_hex lttng_ust_field_integer_hex
#define ctf_integer_network lttng_ust_field_integer_network
#define ctf_integer_network_hex lttng_ust_field_integer_network_hex
#define ctf_float lttng_ust_field_float
#define ctf_enum lttng_ust_field_enum
#define ctf_string lttng_ust_field_string
#define ctf_array lttng_ust_field_array
#define ctf_array_hex lttng_ust_field_array_hex
#define ctf_array_network lttng_ust_field_array_network
#define ctf_array_network_hex lttng_ust_field_array_network_hex
#define ctf_array_text lttng_ust_field_array_text
#define ctf_sequence lttng_ust_field_sequence
#define ctf_sequence_hex lttng_ust_field_sequence_hex
#define ctf_sequence_network lttng_ust_field_sequence_network
#define ctf_sequence_network_hex lttng_ust_field_sequence_network_hex
#define ctf_sequence_text lttng_ust_field_sequence_text
#define ctf_unused lttng_ust_field_unused

#define ctf_integer_nowrite lttng_ust_field_integer_nowrite
#define ctf_float_nowrite lttng_ust_field_float_nowrite
#define ctf_enum_nowrite lttng_ust_field_enum_nowrite
#define ctf_string_nowrite lttng_ust_field_string_nowrite
#define ctf_array_nowrite lttng_ust_field_array_nowrite
#define ctf_array_nowrite_hex lttng_ust_field_array_nowrite_hex
#define ctf_array_network_nowrite lttng_ust_field_array_network_nowrite
#define ctf_array_network_nowrite_hex lttng_ust_field_array_network_nowrite_hex
#define ctf_array_text_nowrite lttng_ust_field_array_text_nowrite
#define ctf_sequence_nowrite lttng_ust_field_sequence_nowrite
#define ctf_sequence_nowrite_hex lttng_ust_field_sequence_nowrite_hex
#define ctf_sequence_network_nowrite lttng_ust_field_sequence_network_nowrite
#define ctf_sequence_network_nowrite_hex lttng_ust_field_sequence_network_nowrite_hex
#define ctf_sequence_text_nowrite lttng_ust_field_sequence_text_nowrite
#define ctf_unused_nowrite lttng_ust_field_unused_nowrite

#define ctf_enum_value lttng_ust_field_enum_value
#define ctf_enum_range lttng_ust_field_enum_range
#define ctf_enum_auto lttng_ust_field_enum_auto

#endif
