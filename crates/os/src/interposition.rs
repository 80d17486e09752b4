//! Lookup of libc's functions, for libraries that put themselves before them.

use std::ffi::CStr;

use crate::thread::weak_symbol;

/// The function that a program would call by this name if the calling library had none of that
/// name; null if there is none. Source: `RTLD_NEXT` in `dlsym(3)`.
pub fn next_libc_function(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// libc's own `clone`, behind a library's; null if there is none. glibc has a name of its own for
/// it.
pub fn libc_clone() -> *const libc::c_void {
    let known = weak_symbol!(__clone);
    if known.is_null() { next_libc_function(c"clone") } else { known }
}

/// Source: `dladdr1(3)`.
type Dladdr1 = unsafe extern "C" fn(
    address: *const libc::c_void,
    info: *mut libc::Dl_info,
    more: *mut *mut libc::c_void,
    flags: libc::c_int,
) -> libc::c_int;

/// The base of the object that an address lies in, and whether a function is defined there.
fn place_of(address: *const libc::c_void) -> Option<(*mut libc::c_void, bool)> {
    const RTLD_DL_SYMENT: libc::c_int = 1;
    let mut symbol: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: all-zero bytes are a valid answer structure.
    let mut object: libc::Dl_info = unsafe { std::mem::zeroed() };
    let dladdr1 = weak_symbol!(dladdr1);
    if dladdr1.is_null() {
        // SAFETY: the address is compared and not followed; the answer has its place.
        let known = unsafe { libc::dladdr(address, &raw mut object) } != 0;
        return known.then_some((object.dli_fbase, !object.dli_saddr.is_null()));
    }
    // SAFETY: glibc's function of this type; the address is compared and not followed, and both
    // answers have their places.
    let known = unsafe {
        let dladdr1 = std::mem::transmute::<*const libc::c_void, Dladdr1>(dladdr1);
        dladdr1(address, &raw mut object, &raw mut symbol, RTLD_DL_SYMENT)
    } != 0;
    // SAFETY: null, or an entry of a loaded object's symbol table.
    let symbol = unsafe { symbol.cast::<libc::Elf64_Sym>().as_ref() };
    known.then(|| (object.dli_fbase, symbol.is_some_and(|symbol| symbol.st_shndx != 0)))
}

/// Whether the function that a program calls by this name is defined in another object than the one
/// in which `own` lies.
///
/// An executable at a fixed address may have a stub of that name, by which it calls the function of
/// a library and which stands for its address; that is no definition.
pub fn has_other_definition(name: &CStr, own: *const libc::c_void) -> bool {
    // SAFETY: `name` is NUL-terminated. Source: `RTLD_DEFAULT` in `dlsym(3)`.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let (Some((base, is_defined)), Some((own_base, _))) = (place_of(found), place_of(own)) else {
        return false;
    };
    base != own_base && is_defined
}

/// Result of a function that this system doesn't have: -1, with `errno` set.
pub fn fail_with_enosys() -> libc::c_int {
    // SAFETY: the address of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
