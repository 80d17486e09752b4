//! A plugin that comes and goes.

/// Records one event of its own, and one of the crate that the program has too.
#[no_mangle]
pub extern "C" fn plugin_work(number: u32) {
    let _span = tompion::span!("plugin", "work", number);
    helper::plain(number);
}
