//! The server, asked as a browser asks it.

mod auth;
mod client;
mod corpus;
mod counters;
mod debug_log;
mod fixtures;
mod late_trace;
mod offsets;
mod prefetch;
mod selections;
mod storage;
mod unusual_traces;
