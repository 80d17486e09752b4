//! Link options of libtompion.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtompion.so.0");
    // A section's descriptor must never be unmapped while a thread may point to it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
