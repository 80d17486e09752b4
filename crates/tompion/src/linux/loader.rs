//! The library as a shared object: in the process already, or loaded.

use std::{
    ffi::{CStr, c_char, c_int, c_ulong, c_void},
    ptr,
};

use super::{
    agent::{AgentFunction, function},
    recorders,
};

/// The library, as programs find it.
const LIBRARY: &CStr = c"libtompion.so.0";
/// Paths of the library, for programs that don't find it by its name.
const LIBRARY_VARIABLE: &CStr = c"TOMPION_LIBRARY";
/// Variables of the environment that ask for a recording.
const ASKING_VARIABLES: [&CStr; 2] = [c"TOMPION_SESSION", c"TOMPION_RECORD"];
/// Folder with sockets of recorders, or one such socket.
const SOCKET_VARIABLE: &CStr = c"TOMPION_SOCKET";
/// `1` keeps the library out of a process.
const DISABLE_VARIABLE: &CStr = c"TOMPION_DISABLE";

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn secure_getenv(name: *const c_char) -> *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Source: `getauxval(3)`.
const AT_SECURE: c_ulong = 23;

// The same everywhere that this crate records.
const RTLD_DEFAULT: *mut c_void = ptr::null_mut();
const RTLD_NOW: c_int = 2;
const RTLD_NOLOAD: c_int = 4;
const RTLD_GLOBAL: c_int = 0x100;

/// A function of the library, if it is in the process.
pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is text.
    let found = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) };
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is text. A library that only a plugin needed isn't among the default ones.
    let library = unsafe { dlopen(LIBRARY.as_ptr(), RTLD_NOW | RTLD_NOLOAD) };
    // SAFETY: the library was opened, and the name is text.
    if library.is_null() { library } else { unsafe { dlsym(library, name.as_ptr()) } }
}

/// Loads the library if the environment asks for a recording, or a recorder wants this program.
pub fn open_if_asked() -> Option<AgentFunction> {
    if is_disabled() || is_privileged() {
        return None;
    }
    let asked = ASKING_VARIABLES.iter().any(|name| variable(name).is_some());
    if asked || recorders::want_this_program(variable(SOCKET_VARIABLE)) { open() } else { None }
}

/// Whether the environment forbids the library.
fn is_disabled() -> bool {
    variable(DISABLE_VARIABLE).is_some_and(|value| value == c"1")
}

/// Whether this program has more rights than the process that started it: it joins nothing.
fn is_privileged() -> bool {
    // SAFETY: a plain call.
    unsafe { getauxval(AT_SECURE) != 0 }
}

/// Loads the library, unless the environment forbids it.
pub fn open() -> Option<AgentFunction> {
    if is_disabled() {
        return None;
    }
    for library in variable(LIBRARY_VARIABLE).into_iter().chain([LIBRARY]) {
        // SAFETY: a library of this name keeps to what is agreed.
        let library = unsafe { dlopen(library.as_ptr(), RTLD_NOW | RTLD_GLOBAL) };
        if !library.is_null() {
            // SAFETY: the library was opened, and the name is text.
            return function(unsafe { dlsym(library, c"tompion_agent_v1".as_ptr()) });
        }
    }
    None
}

/// A variable of the environment; none in a program with more rights than the process that started
/// it.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is text; no thread changes the environment while constructors run, and later
    // callers of `load` keep to the rules of `std::env::set_var`.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    // SAFETY: null, or text.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
