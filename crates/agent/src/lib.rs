//! libtompion.so: the agent inside every instrumented program.
//!
//! Programs register their event sites when they are loaded ([`abi`]). If the environment names a
//! session, the agent sends it a `Hello` ([`connect`], [`launch`]) and receives memory files with
//! rings ([`session`]). It describes events in the shared catalog and enables their sites
//! ([`registry`]). From then on an event goes from its site straight into a ring ([`event`]), and a
//! background thread waits for messages of the sessions ([`background_thread`]).
//!
//! The host comes first: nothing here aborts, prints, or keeps a program from ending. Nothing on
//! the event path makes a system call, allocates or takes a lock. Whatever goes wrong, the program
//! runs on without being recorded.
//!
//! Modules use only those that stand below them:
//!
//! ```text
//! abi, fork_child, identity, main_exit, namespaces    entry points of the program and of libc
//! startup                                             library load
//! background_thread                                   messages, attach requests, retries
//! connect                                             which sessions, and when
//! session                                             handshake: from an answer to a recording
//! state_dump                                          functions that record the program's state
//! registry                                            modules, events, recordings; one lock
//! recording, pending, thread_state, objects           what the registry holds
//! event, actions, triggers, counts                    the event path
//! context, filters, open_spans, table                 values and predicates of the event path
//! site, writer, fork, launch, trust, lock, heap, host, debug_log
//! ```

mod abi;
mod actions;
mod background_thread;
mod clone;
mod connect;
mod context;
mod counts;
mod debug_log;
mod event;
mod filters;
mod fork;
mod fork_child;
mod heap;
mod host;
#[cfg(feature = "shared")]
mod identity;
mod launch;
mod lock;
#[cfg(feature = "shared")]
mod main_exit;
mod namespaces;
mod objects;
mod open_spans;
mod pending;
mod recording;
mod registry;
mod session;
mod site;
mod startup;
mod state_dump;
mod table;
mod thread_state;
mod tracepoints;
mod triggers;
mod trust;
mod writer;
