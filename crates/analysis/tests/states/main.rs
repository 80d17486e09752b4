//! States in real traces and in synthetic ones.

mod checked;
mod corpus;
mod durations;
mod fixtures;
