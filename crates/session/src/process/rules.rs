//! Rules of a process, which can change while it is recorded.

use std::sync::atomic::{Ordering, fence};

use tompion_control::Following;
use tompion_layout::control;
use tompion_protocol::{message::ToAgent, rules::Rules};
use tompion_ring::rules_text;

use super::{Process, ThreadContextSources};
use crate::{
    context::Threads,
    filter::{self, SessionFilter},
};

impl ThreadContextSources {
    /// Replaces the filter, if the session has a part in it.
    fn set_filter(&mut self, filter: Option<&str>, threads: impl FnOnce() -> Threads) {
        self.filter = filter.filter(|filter| filter::needs_session(filter)).map(str::to_owned);
        if self.filter.is_some() && self.threads.is_none() {
            self.threads = Some(threads());
        }
    }
}

impl Process {
    /// Replaces the rules: for the agent, which enables events by them as soon as it is told, and
    /// for what is converted from now on. Bytes that were written by the old rules should be
    /// converted before.
    pub fn set_rules(&mut self, rules: &Rules) {
        rules_text::publish(&self.control, rules.to_text().as_bytes());
        // Ordering: pairs with the fence in the agent's `acknowledge_listening`: either the process
        // sees the rules when it begins to listen, or it is told here.
        fence(Ordering::SeqCst);
        if !self.listens() {
            // Its events go by the old rules, and so does the session's part of the filter.
            return;
        }
        let (pid, inner) = (self.pid, self.hello.pid);
        self.context_sources.set_filter(rules.filter.as_deref(), || Threads::new(pid, inner, Vec::new()));
        self.spans_with_fields.clear();
        let filter = self.context_sources.filter.as_deref();
        for class in self.classes.values_mut() {
            let span = filter.and_then(|filter| filter::span_with_fields(filter, &class.event));
            self.spans_with_fields.extend(span);
            class.filter = filter.map(|filter| SessionFilter::new(filter, &class.event));
        }
        self.announce_rules();
    }

    /// Tells the agent that rules or triggers have changed, if it listens.
    pub(super) fn announce_rules(&self) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.listens()) {
            // An agent that has gone needs no rules.
            let _ = socket.send(&ToAgent::RulesChanged.encode(), &[]);
        }
    }

    /// Whether a thread of it has said that it receives what the session says. (What `Hello` says
    /// isn't enough: a thread may not have been started.)
    pub(super) fn has_announced_thread(&self) -> bool {
        // Ordering: a fact by itself.
        self.control.word(control::OFFSET_LISTENS).load(Ordering::Relaxed) != 0
    }

    /// Whether the session has a part in its filter.
    pub fn has_session_filter(&self) -> bool {
        self.context_sources.filter.is_some()
    }

    /// Whether the process goes by the newest rules.
    pub fn following(&self) -> Following {
        match (&self.socket, rules_text::is_acknowledged(&self.control), self.has_announced_thread()) {
            (None, _, _) => Following::Unreachable,
            (Some(_), true, _) => Following::Current,
            (Some(_), false, true) => Following::Pending,
            (Some(_), false, false) => Following::Fixed,
        }
    }
}
