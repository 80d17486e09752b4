//! Grants: what users other than root may record by root's supervisor, as files of root say.
//!
//! ```text
//! /etc/tompion/grants.d/*.toml ─► GrantFile ─► Grant ─┐
//! /run/…, /usr/lib/…                                  ├─► Grants::of(member) ─► its one grant
//!                                 problems ◄──────────┘
//! ```
//!
//! A grant adds to what a user may do without root: it never makes a user root. The supervisor
//! starts the recorders, and keeps them within the grant.
#![forbid(unsafe_code)]

mod files;
mod grant;
mod toml_error;

pub use files::Grants;
pub use grant::{Grant, MAX_SESSIONS, Member};
pub use toml_error::describe_toml_error;
