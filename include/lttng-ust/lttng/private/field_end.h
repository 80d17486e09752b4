/*
 * The words of field_begin.h mean nothing again.
 *
 * Part of <lttng/tracepoint-event.h>; not to be included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#undef LTTNG_UST_TP_FIELDS
#undef LTTNG_UST_TP_ENUM_VALUES
#undef lttng_ust_field_integer
#undef lttng_ust_field_integer_hex
#undef lttng_ust_field_integer_network
#undef lttng_ust_field_integer_network_hex
#undef lttng_ust_field_float
#undef lttng_ust_field_enum
#undef lttng_ust_field_string
#undef lttng_ust_field_array
#undef lttng_ust_field_array_hex
#undef lttng_ust_field_array_network
#undef lttng_ust_field_array_network_hex
#undef lttng_ust_field_array_text
#undef lttng_ust_field_sequence
#undef lttng_ust_field_sequence_hex
#undef lttng_ust_field_sequence_network
#undef lttng_ust_field_sequence_network_hex
#undef lttng_ust_field_sequence_text
#undef lttng_ust_field_fixed_length_blob
#undef lttng_ust_field_variable_length_blob
#undef lttng_ust_field_unused
#undef lttng_ust_field_integer_nowrite
#undef lttng_ust_field_float_nowrite
#undef lttng_ust_field_enum_nowrite
#undef lttng_ust_field_string_nowrite
#undef lttng_ust_field_array_nowrite
#undef lttng_ust_field_array_nowrite_hex
#undef lttng_ust_field_array_network_nowrite
#undef lttng_ust_field_array_network_nowrite_hex
#undef lttng_ust_field_array_text_nowrite
#undef lttng_ust_field_sequence_nowrite
#undef lttng_ust_field_sequence_nowrite_hex
#undef lttng_ust_field_sequence_network_nowrite
#undef lttng_ust_field_sequence_network_nowrite_hex
#undef lttng_ust_field_sequence_text_nowrite
#undef lttng_ust_field_fixed_length_blob_nowrite
#undef lttng_ust_field_variable_length_blob_nowrite
#undef lttng_ust_field_unused_nowrite
#undef lttng_ust_field_enum_value
#undef lttng_ust_field_enum_range
#undef lttng_ust_field_enum_auto

#if TOMPION_LTTNG_OLD_NAMES
#undef TP_FIELDS
#undef TP_ENUM_VALUES
#undef ctf_integer
#undef ctf_integer_hex
#undef ctf_integer_network
#undef ctf_integer_network_hex
#undef ctf_float
#undef ctf_enum
#undef ctf_string
#undef ctf_array
#undef ctf_array_hex
#undef ctf_array_network
#undef ctf_array_network_hex
#undef ctf_array_text
#undef ctf_sequence
#undef ctf_sequence_hex
#undef ctf_sequence_network
#undef ctf_sequence_network_hex
#undef ctf_sequence_text
#undef ctf_unused
#undef ctf_integer_nowrite
#undef ctf_float_nowrite
#undef ctf_enum_nowrite
#undef ctf_string_nowrite
#undef ctf_array_nowrite
#undef ctf_array_nowrite_hex
#undef ctf_array_network_nowrite
#undef ctf_array_network_nowrite_hex
#undef ctf_array_text_nowrite
#undef ctf_sequence_nowrite
#undef ctf_sequence_nowrite_hex
#undef ctf_sequence_network_nowrite
#undef ctf_sequence_network_nowrite_hex
#undef ctf_sequence_text_nowrite
#undef ctf_unused_nowrite
#undef ctf_enum_value
#undef ctf_enum_range
#undef ctf_enum_auto
#endif
