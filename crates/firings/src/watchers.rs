//! Programs that watch the firings of triggers.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    mpsc::{self, Receiver, SyncSender, TrySendError},
};

use serde_json::{Value, json};

/// Maximum number of programs that watch triggers: each has a connection.
const MAX_WATCHERS: usize = 8;
/// Maximum number of firings that one of them has not taken.
const MAX_WAITING_FIRINGS: usize = 64;

/// Programs that watch triggers.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<SyncSender<Value>>>);

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Vec<SyncSender<Value>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watcher, unless there are too many.
    pub fn add(&self) -> Option<Receiver<Value>> {
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING_FIRINGS);
        // That it watches.
        let _ = sender.try_send(json!({}));
        let mut list = self.lock();
        if list.len() >= MAX_WATCHERS {
            // A closed receiver is noticed only by a send, and the other watchers receive each
            // probe as a reply.
            list.retain(|sender| !matches!(sender.try_send(json!({})), Err(TrySendError::Disconnected(_))));
        }
        (list.len() < MAX_WATCHERS).then(|| {
            list.push(sender);
            receiver
        })
    }

    /// Sends a firing to all. One that does not take its replies is left out.
    pub fn send(&self, firing: &Value) {
        self.lock().retain(|sender| sender.try_send(firing.clone()).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_probed_only_when_there_is_no_room_for_one_more() {
        let watchers = Watchers::default();
        let mut receivers: Vec<_> = (0..MAX_WATCHERS).map(|_| watchers.add().expect("room")).collect();
        assert_eq!(receivers[0].try_iter().count(), 1, "that it watches, and no probe");
        assert!(watchers.add().is_none(), "all of them watch");
        assert_eq!(receivers[0].try_iter().count(), 1, "the probe");
        receivers.pop();
        assert!(watchers.add().is_some(), "one has gone");
    }
}
