//! Fields that a span gets after it was made: they go with its ends.

use std::{collections::BTreeMap, error::Error, fmt::Debug};

use tompion::dynamic::{Kept, Values};
use tracing_core::{
    field::{Field, Visit},
    span::Record,
};

use crate::{
    callsites::{Callsite, Role},
    visit::key,
};

/// The fields so far, and the event that ends the span with them.
#[derive(Default)]
pub struct DeferredFields {
    fields: BTreeMap<u8, Value>,
    end: Option<Kept>,
}

enum Value {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
    Text(String),
    Bytes(Vec<u8>),
}

impl DeferredFields {
    /// Adds fields, or gives them new values.
    pub fn add(&mut self, record: &Record<'_>, callsite: &'static Callsite) {
        record.record(self);
        let mut values = Values::new();
        for (&key, value) in &self.fields {
            match value {
                Value::Signed(value) => values.signed(key, *value),
                Value::Unsigned(value) => values.unsigned(key, *value),
                Value::Float(value) => values.float(key, *value),
                Value::Boolean(value) => values.boolean(key, *value),
                Value::Text(value) => values.text(key, value),
                Value::Bytes(value) => values.bytes(key, value),
            }
        }
        self.end = callsite.event(Role::End, &values).keep(&values);
    }

    /// The event that ends the span.
    pub const fn end(&self) -> Option<&Kept> {
        self.end.as_ref()
    }
}

impl Visit for DeferredFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(key(field), Value::Signed(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(key(field), Value::Unsigned(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(key(field), Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(key(field), Value::Boolean(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(key(field), Value::Text(value.to_owned()));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.fields.insert(key(field), Value::Bytes(value.to_owned()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.fields.insert(key(field), Value::Text(value.to_string()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.fields.insert(key(field), Value::Text(value.to_string()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.fields.insert(key(field), Value::Text(value.to_string()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(key(field), Value::Text(format!("{value:?}")));
    }
}
