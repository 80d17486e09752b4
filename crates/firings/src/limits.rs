//! Limits of what the manifest has of triggers.

use tompion_manifest::{Firing, TriggerChange};

/// Maximum number of firings.
const MAX_FIRINGS: usize = 256;
/// Maximum size of their texts together, in bytes.
const MAX_FIRINGS_TEXT: usize = 64 << 10;
/// Maximum number of changes of the triggers, and of bytes that these take.
const MAX_CHANGES: usize = 100;
const MAX_CHANGES_BYTES: usize = 32 << 10;

/// Whether a manifest with these firings has room for one more.
pub fn has_room_for_firing(firings: &[Firing], more: &Firing) -> bool {
    let text = |firing: &Firing| {
        let captures = firing.captures.iter().filter_map(|capture| serde_json::to_string(capture).ok());
        captures.fold(firing.trigger.len() + firing.cause.len(), |sum, text| sum + text.len())
    };
    let all = firings.iter().map(text).fold(text(more), usize::saturating_add);
    firings.len() < MAX_FIRINGS && all <= MAX_FIRINGS_TEXT
}

/// Whether a manifest with these changes has room for one more.
pub fn has_room_for_change(changes: &[TriggerChange], more: &TriggerChange) -> bool {
    let bytes = changes.iter().chain([more]).map(TriggerChange::size_in_manifest);
    changes.len() < MAX_CHANGES && bytes.fold(0, usize::saturating_add) <= MAX_CHANGES_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firings_in_the_manifest_are_limited_by_number_and_by_text() {
        let firing = |bytes| Firing { trigger: "x".repeat(bytes), ..Firing::default() };
        let has_room = has_room_for_firing;
        let half = MAX_FIRINGS_TEXT / 2;
        assert!(has_room(&vec![firing(10); MAX_FIRINGS - 1], &firing(10)));
        assert!(!has_room(&vec![firing(10); MAX_FIRINGS], &firing(10)));
        assert!(has_room(&[firing(half)], &firing(half)));
        assert!(!has_room(&[firing(half)], &firing(half + 1)));
        assert!(!has_room(&[], &firing(MAX_FIRINGS_TEXT + 1)));
    }

    #[test]
    fn changes_in_the_manifest_are_limited_by_number_and_by_text() {
        let change = |bytes: usize| TriggerChange { time_ns: 0, triggers: vec!["x".repeat(bytes)] };
        assert!(has_room_for_change(&vec![change(5); MAX_CHANGES - 1], &change(5)));
        assert!(!has_room_for_change(&vec![change(5); MAX_CHANGES], &change(5)));
        assert!(!has_room_for_change(&[change(MAX_CHANGES_BYTES / 4)], &change(MAX_CHANGES_BYTES / 4)));
    }
}
