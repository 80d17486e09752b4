//! In a program that is linked statically: a shared object would bring a second C library.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use super::agent::AgentFunction;

/// Nothing is found.
pub const fn symbol(_name: &CStr) -> *mut c_void {
    ptr::null_mut()
}

/// Nothing is loaded.
pub const fn open_if_asked() -> Option<AgentFunction> {
    None
}

/// Nothing is loaded.
pub const fn open() -> Option<AgentFunction> {
    None
}
