//! Recording of programs: Linux on x86-64 and aarch64.

mod agent;
#[cfg_attr(target_feature = "crt-static", path = "no_loader.rs")]
mod loader;
#[cfg(not(target_feature = "crt-static"))]
mod recorders;
mod site;

pub use agent::{
    add_state_dump, append, append_begin, append_end, append_tails, chosen, is_loaded, load, provide_context,
    register, remove_state_dump, request_snapshot,
};
pub use site::site_of;

#[cfg(test)]
pub use agent::{Module, hand_over};
