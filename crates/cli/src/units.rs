//! Quantities as users type and read them.

pub use tompion_report::format::format_duration;
pub use tompion_units::{count, duration, latency, size};
