//! Platforms without recording: the compiler checks events, and they cost nothing.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::AtomicU32,
};

use crate::{
    description::{Described, measure},
    field::{Fields, Tail},
    site::Site,
};

static DISABLED: Site = Site {
    enabled: AtomicU32::new(0),
    number: AtomicU32::new(0),
    description: ptr::null(),
    enumerations: ptr::null(),
    kind: 0,
    reserved: 0,
};

/// A site that is never enabled.
#[inline(always)]
pub fn site_of<D: Described, F: Fields>() -> &'static Site {
    const { measure(&D::OUTLINE, F::SHAPES) };
    &DISABLED
}

/// Records nothing.
///
/// # Safety
/// Always.
#[inline(always)]
pub unsafe fn append(_site: &Site, _image: *const u8, _size: usize) {}

/// Records nothing.
///
/// # Safety
/// Always.
#[inline(always)]
pub unsafe fn append_tails(
    _site: &Site,
    _image: *const u8,
    _size: usize,
    _tails: *const Tail,
    _count: usize,
) {
}

/// Records nothing.
///
/// # Safety
/// Always.
#[inline(always)]
pub unsafe fn append_begin(
    _site: &Site,
    _image: *const u8,
    _size: usize,
    _tails: *const Tail,
    _count: usize,
) -> u32 {
    0
}

/// Records nothing.
///
/// # Safety
/// Always.
#[inline(always)]
pub unsafe fn append_end(_site: &'static Site, _recordings: u32) {}

/// There are no recordings.
pub const fn chosen(_site: &Site, _recordings: u32) -> Option<Site> {
    None
}

/// There is no library.
pub fn load() -> bool {
    false
}

/// There is no library.
pub fn is_loaded() -> bool {
    false
}

/// There is no library.
pub fn register(_description: &'static [u128]) -> Option<&'static Site> {
    None
}

/// There is no recorder.
pub fn request_snapshot() -> bool {
    false
}

/// There is no recorder.
///
/// # Safety
/// Always.
pub unsafe fn provide_context(_name: &CStr, _ty: u32, _get: *mut c_void) -> bool {
    false
}

/// There is no recorder.
///
/// # Safety
/// Always.
pub unsafe fn add_state_dump(_dump: unsafe extern "C" fn(*mut c_void), _data: *mut c_void) -> bool {
    false
}

/// There is no recorder.
pub fn remove_state_dump(_dump: unsafe extern "C" fn(*mut c_void), _data: *mut c_void) {}
