//! Helper crate: its events belong to the program that it is linked to.
#![forbid(unsafe_code)]

/// Function that is compiled here, with an event.
pub fn plain(number: u32) {
    tompion::event!("helper", "plain", number);
}

/// Function that is inlined, with an event.
#[inline]
pub fn inlined(number: u32) {
    tompion::event!("helper", "inlined", number);
}

/// Generic function, with an event for each type.
pub fn generic<T: tompion::Field>(value: T) {
    tompion::event!("helper", "generic", value);
}

/// Function that is never called, with an event.
pub fn unused(number: u32) {
    tompion::event!("helper", "unused", number);
}
