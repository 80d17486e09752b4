//! Parts of the kernel's events that a recorder adds or judges when it writes them: context fields,
//! stacks and their descriptions, and what programs in the kernel leave of the filter.
//!
//! Rings and traces are left to the session.
#![forbid(unsafe_code)]

pub mod context;
pub mod filter;
pub mod stacks;
