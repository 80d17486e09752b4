//! A crate between: its events belong to whatever it is linked into.
#![forbid(unsafe_code)]

/// In a function that is compiled here.
pub fn plain(number: u32) {
    tompion::event!("helper", "plain", number);
}

/// In one that is compiled where it is used.
#[inline]
pub fn inlined(number: u32) {
    tompion::event!("helper", "inlined", number);
}

/// In one that has an instance for each type.
pub fn generic<T: tompion::Field>(value: T) {
    tompion::event!("helper", "generic", value);
}

/// In a function that is never called.
pub fn unused(number: u32) {
    tompion::event!("helper", "unused", number);
}
