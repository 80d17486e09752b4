//! Reports anomalies of descriptions that can be read nevertheless.

use crate::metadata::{Enum, Struct, Trace, Type, Version};
use crate::tsdl;

/// Beginning of a description of CTF 1.8 in plain text.
const SIGNATURE: &[u8] = b"/* CTF 1.8";
/// Maximum number of warnings about labels.
const MAX_LABELS: usize = 16;

/// Returns warnings about a `metadata` file that was parsed as this trace, one line each.
pub(crate) fn lint(bytes: &[u8], trace: &Trace) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(expected), Some(found)) = (trace.uuid, tsdl::uuid(bytes).filter(|uuid| uuid.0 != [0; 16])) {
        if expected != found {
            warnings.push(format!(
                "expected the UUID {expected} of the trace in metadata packets, found {found}"
            ));
        }
    }
    if trace.version == Version::One && tsdl::uuid(bytes).is_none() && !bytes.starts_with(SIGNATURE) {
        warnings
            .push("expected `/* CTF 1.8 */` at the beginning, found none: other readers refuse it".into());
    }
    if trace.version == Version::Two {
        warnings.extend(impossible_labels(trace));
    }
    if trace.version == Version::Two && trace.streams.is_empty() {
        warnings.push("expected a data stream class, found none: no event can be read".into());
    }
    for clock in &trace.clocks {
        // One second is left for times after the clock's beginning.
        if clock.checked_nanoseconds(0).is_none_or(|zero| zero.checked_add(1_000_000_000).is_none()) {
            warnings.push(format!(
                "expected clock {} to begin in a year up to 2262, found an offset of {} s: later times cannot be shown",
                clock.name, clock.offset_seconds
            ));
        }
    }
    warnings
}

/// Returns warnings about labels of values that their integers cannot have.
fn impossible_labels(trace: &Trace) -> Vec<String> {
    let events = |stream| {
        let stream: &crate::metadata::Stream = stream;
        stream.events.iter().flat_map(|event| [&event.context, &event.payload])
    };
    let of_streams = trace.streams.iter().flat_map(|stream| {
        let own = [&stream.packet_context, &stream.event_header, &stream.event_context];
        own.into_iter().chain(events(stream))
    });
    let mut warnings = Vec::new();
    for root in [&trace.packet_header].into_iter().chain(of_streams).flatten() {
        check_labels(root, &mut warnings);
    }
    warnings.dedup();
    warnings.truncate(MAX_LABELS);
    warnings
}

fn check_labels(structure: &Struct, warnings: &mut Vec<String>) {
    structure.fields.iter().for_each(|field| check_labels_of(&field.ty, &field.name, warnings));
}

fn check_labels_of(ty: &Type, name: &str, warnings: &mut Vec<String>) {
    match ty {
        Type::Enum(Enum { integer, mappings }) => {
            let (least, most) = integer.range();
            let is_outside = |(low, high): (i128, i128)| low < least || high > most;
            for mapping in mappings.iter().filter(|mapping| is_outside((mapping.low, mapping.high))) {
                warnings.push(format!(
                    "expected labels of values from {least} to {most} in field {name:?}, found {:?} for {} to {}",
                    mapping.label, mapping.low, mapping.high
                ));
            }
        }
        Type::Struct(structure) => check_labels(structure, warnings),
        Type::Variant(variant) => {
            variant.options.iter().for_each(|option| check_labels_of(&option.ty, &option.name, warnings));
        }
        Type::Optional(optional) => check_labels_of(&optional.element, name, warnings),
        Type::Array(array) => check_labels_of(&array.element, name, warnings),
        Type::Sequence(sequence) => check_labels_of(&sequence.element, name, warnings),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    const EVENTS: &str = "/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; uuid = \"07070707-0707-0707-0707-070707070707\"; };
        clock { name = c; freq = 1000; };
        stream { event.header := struct {
            integer { size = 32; map = clock.CLOCK.value; } timestamp; }; };
        event { name = e; fields := struct { integer { size = 8; } v; }; };";

    fn warnings_of(bytes: &[u8]) -> Vec<String> {
        crate::describe(bytes).unwrap().warnings
    }

    /// Puts a description into a packet with this UUID.
    fn packet(text: &str, uuid: [u8; 16]) -> Vec<u8> {
        let mut bytes = 0x75d1_1d57_u32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&uuid);
        let bits = (37 + text.len() as u32) * 8;
        [0, bits, bits].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(&[0, 0, 0, 1, 8]);
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn a_clock_that_is_not_described_is_reported_once() {
        assert_eq!(warnings_of(EVENTS.replace("CLOCK", "c").as_bytes()), Vec::<String>::new());
        let text = EVENTS.replace("CLOCK", "other");
        let warnings = warnings_of(text.as_bytes());
        assert_eq!(
            warnings,
            ["expected a clock named other, to which fields are mapped, found none: its times are unknown, \
                line 5, column 34"]
        );
    }

    #[test]
    fn a_description_of_no_stream_is_reported_in_ctf_2() {
        let warnings = warnings_of(br#"{"type": "preamble", "version": 2}{"type": "trace-class"}"#);
        assert_eq!(warnings, ["expected a data stream class, found none: no event can be read"]);
        assert_eq!(
            warnings_of(b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_text_without_its_signature_is_reported() {
        let text = EVENTS.replace("CLOCK", "c");
        assert_eq!(warnings_of(text.as_bytes()), Vec::<String>::new());
        let warnings = warnings_of(text.replace("/* CTF 1.8 */", "").as_bytes());
        assert_eq!(
            warnings,
            ["expected `/* CTF 1.8 */` at the beginning, found none: other readers refuse it"]
        );
    }

    #[test]
    fn labels_of_impossible_values_are_reported_in_ctf_2() {
        let text = r#"{"type": "preamble", "version": 2}
            {"type": "data-stream-class"}
            {"type": "event-record-class", "payload-field-class": {"type": "structure", "member-classes": [
                {"name": "x", "field-class": {"type": "fixed-length-unsigned-integer", "length": 8,
                    "byte-order": "little-endian",
                    "mappings": {"A": [[300, 300]], "B": [[-1, -1]], "C": [[0, 255]]}}}]}}"#
            .replace("{\"type\": \"data", "\x1e{\"type\": \"data")
            .replace("{\"type\": \"event", "\x1e{\"type\": \"event");
        let expected = ["\"A\" for 300 to 300", "\"B\" for -1 to -1"]
            .map(|found| format!("expected labels of values from 0 to 255 in field \"x\", found {found}"));
        assert_eq!(warnings_of(format!("\x1e{text}").as_bytes()), expected);
    }

    #[test]
    fn timestamps_of_two_clocks_are_refused() {
        let text = EVENTS
            .replace("CLOCK", "c")
            .replace("timestamp; };", "timestamp; integer { size = 32; map = clock.d.value; } other; }; ");
        let text = text.replace("clock {", "clock { name = d; freq = 5; }; clock {");
        let trace = crate::parse(text.as_bytes()).unwrap();
        let refused = crate::decode::Decoder::new(trace).err().unwrap().to_string();
        assert_eq!(refused, "event header: expected timestamps of one clock, found \"c\" and \"d\"");
    }

    #[test]
    fn packets_of_another_trace_are_reported_and_mixed_packets_are_refused() {
        let text = EVENTS.replace("CLOCK", "c");
        assert_eq!(warnings_of(&packet(&text, [7; 16])), Vec::<String>::new());
        // Tracers without a UUID leave it zero.
        assert_eq!(warnings_of(&packet(&text, [0; 16])), Vec::<String>::new());
        let warnings = warnings_of(&packet(&text, [8; 16]));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("expected the UUID 07070707-"), "{warnings:?}");

        let (first, second) = text.split_at(text.len() / 2);
        let both = |uuid| [packet(first, [7; 16]), packet(second, uuid)].concat();
        assert!(crate::parse(&both([7; 16])).is_ok());
        let refused = crate::parse(&both([8; 16])).unwrap_err().to_string();
        assert!(refused.starts_with("expected the UUID of the preceding packets"), "{refused}");
        let mut version = both([7; 16]);
        version[36] = 9;
        let refused = crate::parse(&version).unwrap_err().to_string();
        assert!(refused.starts_with("expected a packet of version 1.8 or 2.0, found 1.9"), "{refused}");
    }
}
