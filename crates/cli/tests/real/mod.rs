//! Real programs of other projects: they do the same with and without the libraries of `--preload`,
//! recorded or not.
//!
//! `./x test real` runs these tests alone; `./x test --full real` runs them at full length.

mod attached;
mod preloaded;
