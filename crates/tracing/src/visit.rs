//! Fields as `tracing` hands them out, one by one.

use std::{error::Error, fmt::Debug};

use tompion::dynamic::Values;
use tracing_core::field::{Field, Visit};

/// Puts fields among the values of an event, by their places among the callsite's fields.
pub struct Visitor<'a>(pub &'a mut Values);

/// A field's place. `tracing` has at most 32 fields.
pub fn key(field: &Field) -> u8 {
    field.index() as u8
}

impl Visit for Visitor<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.signed(key(field), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.unsigned(key(field), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.float(key(field), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.boolean(key(field), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.text(key(field), value);
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.0.bytes(key(field), value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.0.formatted(key(field), format_args!("{value}"));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.0.formatted(key(field), format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.0.formatted(key(field), format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.formatted(key(field), format_args!("{value:?}"));
    }
}
