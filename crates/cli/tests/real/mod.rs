//! Real programs, which nobody here wrote: with the libraries of `--preload` and without they do
//! the same, whether they are recorded or not.
//!
//! `./x test real` runs these tests alone; `./x test --full real` runs them at full length.

mod attached;
mod preloaded;
