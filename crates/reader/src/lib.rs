//! Reads traces of any CTF producer: opens, merges by time, prints, sums up.
#![forbid(unsafe_code)]
