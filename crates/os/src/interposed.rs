//! For libraries that put themselves before functions of libc.

use std::ffi::CStr;

/// The function that a program would call by this name if the calling library had none of that name; null if
/// there is none. Source: `RTLD_NEXT` in `dlsym(3)`.
pub fn next_function(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

unsafe extern "C" {
    /// Source: `dladdr1(3)`.
    fn dladdr1(
        address: *const libc::c_void,
        info: *mut libc::Dl_info,
        more: *mut *mut libc::c_void,
        flags: libc::c_int,
    ) -> libc::c_int;
}

/// Whether the function that a program calls by this name is defined in another object than the one in which
/// `own` lies.
///
/// An executable at a fixed address may have a stub of that name, by which it calls the function of a library and
/// which stands for its address; that is no definition.
pub fn is_defined_elsewhere(name: &CStr, own: *const libc::c_void) -> bool {
    // SAFETY: `name` is NUL-terminated. Source: `RTLD_DEFAULT` in `dlsym(3)`.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let of = |address| {
        const RTLD_DL_SYMENT: libc::c_int = 1;
        let mut symbol: *mut libc::c_void = std::ptr::null_mut();
        // SAFETY: all-zero bytes are a valid answer structure.
        let mut object: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is compared and not followed; both answers have their places.
        let known = unsafe { dladdr1(address, &raw mut object, &raw mut symbol, RTLD_DL_SYMENT) } != 0;
        known.then_some((object.dli_fbase, symbol.cast::<libc::Elf64_Sym>()))
    };
    let (Some((base, symbol)), Some((own_base, _))) = (of(found), of(own)) else { return false };
    // SAFETY: null, or an entry of a loaded object's symbol table.
    let is_defined = unsafe { symbol.as_ref() }.is_some_and(|symbol| symbol.st_shndx != 0);
    base != own_base && is_defined
}

/// What a function returns that this system doesn't have: -1, with `errno` set.
pub fn fail_as_missing() -> libc::c_int {
    // SAFETY: the address of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
