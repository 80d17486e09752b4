//! Link options of libtompion.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtompion.so.0");
    // Nothing of it can be written that is not data: addresses of functions are filled in when it
    // is loaded, then read-only.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now,-z,noexecstack,-z,text");
    // A section's descriptor must never be unmapped while a thread may point to it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
