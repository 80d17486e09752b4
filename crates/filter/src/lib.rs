//! Filters over events: `rows > 100 && table == "orders*" && $tid == 12`.
//!
//! One language for all who choose events: the agent before a record is written, the kernel's programs,
//! the session, the reader. [`parse()`] makes an [`Expression`] of a text; [`compile()`] binds that to the
//! events of one kind, [`compile_unbound`] to whoever looks names up at run time. What comes out is a
//! [`Program`], small and verified, that runs forwards only, neither allocates nor panics, and answers
//! true, false or *unknown*: what one place cannot know, a later one decides. At the last place unknown
//! counts as false.
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
//! This crate knows neither rings nor traces: where values come from is the business of [`Values`], of
//! which [`RecordValues`] is the one for records.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(test)]
mod c_test;
mod compile;
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

/// Longest filter as text, in bytes.
pub const MAX_TEXT: usize = 4096;
/// Longest program as bytes.
pub const MAX_PROGRAM: usize = 4096;
/// Most parentheses and unary operators in each other.
pub const MAX_NESTING: usize = 64;
/// Most values that a program has at a time.
pub const MAX_STACK: usize = 64;
/// Most different fields and contexts that a filter asks for.
pub const MAX_OPERANDS: usize = 64;
/// Most parts of a name: `a.b[3]` has three.
pub const MAX_SEGMENTS: usize = 16;
/// Longest part of a name in bytes.
pub const MAX_NAME: usize = 255;
/// Longest text literal in bytes, an escaped byte counted as two.
pub const MAX_LITERAL: usize = 255;
