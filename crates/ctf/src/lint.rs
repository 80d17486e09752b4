//! Reports anomalies of descriptions that can be read nevertheless.

use crate::metadata::{Trace, Version};
use crate::tsdl;

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

#[cfg(test)]
mod tests {
    const EVENTS: &str = "
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
