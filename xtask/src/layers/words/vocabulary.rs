//! The word list as tables: what is not to be written, and the word of the field to use instead.

/// Files that the check leaves out: they quote the words, are generated, or must stay as released.
pub const EXEMPT: &[&str] = &[
    "benches/results/",
    "crates/agent/tests/abi/",
    "crates/viewer/page/",
    "docs/glossary.md",
    "docs/style.md",
    "xtask/src/layers/words",
];

/// Paths that still break the rules. One leaves the list when the last break in it is gone; the
/// check fails on an entry that has none left.
pub const PENDING: &[&str] = &[];

/// Words behind which "who" is a person.
pub const PEOPLE: &[&str] = &[
    "anyone",
    "author",
    "authors",
    "developer",
    "developers",
    "engineer",
    "engineers",
    "everyone",
    "operator",
    "operators",
    "people",
    "person",
    "reader",
    "readers",
    "someone",
    "those",
    "user",
    "users",
];

/// Words that no comment, document or message has.
pub const BANNED_IN_PROSE: &[(&str, &str)] = &[
    ("amidst", "in the middle of"),
    ("anew", "again"),
    ("anybody", "name the role: a user, a process, a session"),
    ("astray", "misattributed, or misplaced"),
    ("everybody", "name the role: every process, every client"),
    ("nobody", "no process, no session, no reader"),
    ("somebody", "name the role: a user, a process, a session"),
    ("watchman", "watchdog"),
    ("watchmen", "watchdogs"),
    ("whoever", "name the role: the caller, the producer, the reader"),
    ("whomever", "name the role: the caller, the producer, the reader"),
];

/// First words of a doc comment that make it a free relative clause.
pub const BANNED_OPENINGS: &[&str] =
    &["How", "What", "Whatever", "When", "Where", "Which", "Who", "Whom", "Whose", "Why"];

/// Beginnings of names, with what to write instead.
pub const BANNED_PREFIXES: &[(&str, &str)] = &[
    ("LARGEST_", "MAX_…"),
    ("LONGEST_", "MAX_… or …_TIMEOUT"),
    ("MOST_", "MAX_…"),
    ("PATIENCE", "…_TIMEOUT"),
];

/// Words within names, with what to write instead.
pub const BANNED_IN_NAMES: &[(&str, &str)] = &[
    ("amidst", "in the middle of"),
    ("anew", "again; export_roundtrip"),
    ("astray", "misattributed; faulty_producers"),
    ("doubtful", "may_have_torn_pages, RingFormat (glossary: torn page)"),
    ("glimpse", "Preview"),
    ("guest", "PendingHandshakes, Connection"),
    ("guests", "PendingHandshakes, Connection"),
    ("heirs", "inherited_sockets"),
    ("nobody", "none, no_…"),
    ("patience", "…_TIMEOUT"),
    ("ripe", "Backlog::ClockBracketed, bracketed_until"),
    ("scout", "Prefetcher"),
    ("somebody", "name the role"),
    ("told", "SyntheticTrace, TraceInfo, reported"),
    ("watchman", "watchdog"),
    ("watchmen", "StallWatchdog"),
    ("whoever", "name the role"),
    ("wish", "ProbeSpec, ViewportRequest, …Args"),
];
