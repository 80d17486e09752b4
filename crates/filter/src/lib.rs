//! Filters over events: `rows > 100 && table == "orders*" && $tid == 12`.
//!
//! One language for every component that selects events: the agent before it writes a record, the
//! kernel's programs, the session, and the reader.
//!
//! [`parse()`] converts a text to an [`Expression`]. [`compile()`] binds it to one kind of events;
//! [`compile_unbound`] leaves the lookup of names to the evaluator. The result is a [`Program`]:
//! small, verified, without backward jumps. Its evaluation neither allocates nor panics, and yields
//! true, false or *unknown*. An unknown verdict is decided by a later evaluator that knows more.
//! For the last one, unknown counts as false.
//!
//! ```
//! use tompion_filter::{Operand, Value, Values, Verdict, compile_unbound, parse};
//!
//! struct Query { rows: u64, table: &'static str }
//! impl Values for Query {
//!     fn number(&self, operand: &Operand) -> Value {
//!         if operand.name.head() == "rows" { self.rows.into() } else { Value::UNKNOWN }
//!     }
//!     fn text(&self, operand: &Operand) -> Option<&[u8]> {
//!         (operand.name.head() == "table").then_some(self.table.as_bytes())
//!     }
//! }
//!
//! let filter = parse(r#"rows > 4K && table == "orders*""#).unwrap();
//! let program = compile_unbound(&filter).unwrap();
//! assert_eq!(program.evaluate(&Query { rows: 5000, table: "orders_2026" }), Verdict::True);
//! assert_eq!(program.evaluate(&Query { rows: 12, table: "orders_2026" }), Verdict::False);
//! ```
//!
//! This crate knows neither rings nor traces. [`Values`] supplies the values; [`RecordValues`] is
//! its implementation for records.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(test)]
mod c_test;
mod compile;
mod conditions;
mod error;
mod event;
mod expression;
mod literal;
mod name;
mod parse;
mod pattern;
mod program;
mod record;
mod schema;
mod token;
mod tree;
mod types;
mod value;

pub use bytes::ProgramError;
pub use compile::{compile, compile_unbound};
pub use error::{FilterError, Span};
pub use event::EventSchema;
pub use expression::Expression;
pub use name::{Name, Scope, Segment};
pub use parse::parse;
pub use program::{Operand, Program, Values, Verdict};
pub use record::{Contexts, NoContexts, Packed, RecordValues, Shape, Tails};
pub use schema::{Encoding, Found, Kind, Place, Scalar, Schema};
pub use tree::Tree;
pub use value::{Arithmetic, Comparison, Value};

/// Maximum length of a filter's text in bytes.
pub const MAX_TEXT: usize = 4096;
/// Maximum size of a serialized program in bytes.
pub const MAX_PROGRAM: usize = 4096;
/// Maximum nesting of parentheses and unary operators.
pub const MAX_NESTING: usize = 64;
/// Maximum number of values on a program's stack.
pub const MAX_STACK: usize = 64;
/// Maximum number of different fields and contexts in a filter.
pub const MAX_OPERANDS: usize = 64;
/// Maximum number of parts of a name: `a.b[3]` has three.
pub const MAX_SEGMENTS: usize = 16;
/// Maximum length of a part of a name in bytes.
pub const MAX_NAME: usize = 255;
/// Maximum length of a text literal in bytes; an escaped byte counts as two.
pub const MAX_LITERAL: usize = 255;
