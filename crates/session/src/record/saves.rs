//! Snapshots that were asked for and are not saved yet: a disk may hang. The control thread does
//! not wait for them, so that programs which start meanwhile are admitted.

use std::{
    sync::mpsc::{Receiver, Sender, TryRecvError},
    time::{Duration, Instant},
};

use tompion_manifest::Snapshot;

use super::triggers::Window;

/// Maximum number of snapshots that wait for a disk.
pub(super) const MAX_SAVES: usize = 64;
/// Time after which a disk counts as slow, and intervals between two looks before and after that.
const SLOW_TIME: Duration = Duration::from_millis(100);
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
const LONG_INTERVAL: Duration = Duration::from_millis(20);

/// Events that a thread has saved: of the snapshot, and of all so far.
pub(super) type Events = (u64, u64);

/// What follows when a snapshot is saved.
pub(super) enum AfterSave {
    /// Nothing.
    Nothing,
    /// The number of its events is told.
    Tell(Sender<u64>),
    /// It goes on until a time; then the number of all of its events is told.
    GoOn(Instant, Option<Sender<u64>>),
    /// It has ended snapshots that went on.
    End(Vec<Window>),
}

/// Snapshot that is saved.
pub(super) struct Saved {
    /// Its entry in the manifest.
    pub snapshot: Snapshot,
    /// Events of all snapshots so far.
    pub total: u64,
    pub then: AfterSave,
}

/// Snapshots that are being saved, in their order.
#[derive(Default)]
pub(super) struct PendingSaves(Vec<PendingSave>);

struct PendingSave {
    since: Instant,
    begun_ns: u64,
    incident: Option<String>,
    consumer: Part,
    /// Of the kernel's thread, if it has one.
    kernel: Option<Part>,
    then: AfterSave,
}

/// Share of a thread in a snapshot.
enum Part {
    Pending(Receiver<Events>),
    Saved(Events),
    /// The thread has ended.
    Lost,
}

impl Part {
    /// Takes the thread's answer, if it is there or is to be waited for. True once there is none to
    /// come.
    fn is_over(&mut self, waits: bool) -> bool {
        if let Self::Pending(receiver) = self {
            let answer = if waits {
                receiver.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                receiver.try_recv()
            };
            *self = match answer {
                Ok(events) => Self::Saved(events),
                Err(TryRecvError::Disconnected) => Self::Lost,
                Err(TryRecvError::Empty) => return false,
            };
        }
        true
    }

    fn events(&self) -> Option<Events> {
        if let Self::Saved(events) = self { Some(*events) } else { None }
    }
}

impl PendingSaves {
    /// Whether no further one may wait.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_SAVES
    }

    /// Adds a snapshot that was asked of the consumer, and of the kernel's thread if there is one.
    pub(super) fn add(
        &mut self,
        (consumer, kernel): (Receiver<Events>, Option<Receiver<Events>>),
        incident: Option<String>,
        then: AfterSave,
    ) {
        self.0.push(PendingSave {
            since: Instant::now(),
            begun_ns: tompion_os::monotonic_ns(),
            incident,
            consumer: Part::Pending(consumer),
            kernel: kernel.map(Part::Pending),
            then,
        });
    }

    /// Takes those that are saved, in the order in which they were asked for; all, if they are to
    /// be waited for. Without the consumer, there is none.
    pub(super) fn take_saved(&mut self, waits: bool) -> Vec<Saved> {
        let is_pending = |save: &mut PendingSave| {
            let is_over = save.consumer.is_over(waits);
            !(is_over && save.kernel.as_mut().is_none_or(|part| part.is_over(waits)))
        };
        let count = self.0.iter_mut().position(is_pending).unwrap_or(self.0.len());
        let saved = self.0.drain(..count).filter_map(|save| {
            let (events, total) = save.consumer.events()?;
            let (of_kernel, all_of_kernel) = save.kernel.and_then(|part| part.events()).unwrap_or_default();
            let (begun_ns, incident) = (save.begun_ns, save.incident);
            let snapshot = Snapshot { begun_ns, events: events + of_kernel, incident };
            Some(Saved { snapshot, total: total + all_of_kernel, then: save.then })
        });
        saved.collect()
    }

    /// Time of the next look.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        let since = self.0.first()?.since;
        let is_slow = now.saturating_duration_since(since) >= SLOW_TIME;
        Some(now + if is_slow { LONG_INTERVAL } else { SHORT_INTERVAL })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_snapshot_that_a_disk_holds_up_is_not_waited_for() {
        let (disk, consumer) = mpsc::channel();
        let (kernel, of_kernel) = mpsc::channel();
        let (told, teller) = mpsc::channel();
        let mut saves = PendingSaves::default();
        assert_eq!(saves.next_look(Instant::now()), None);
        saves.add((consumer, Some(of_kernel)), Some("id".into()), AfterSave::Tell(told));
        let (next, behind) = mpsc::channel();
        next.send((1, 8)).expect("a receiver");
        saves.add((behind, None), None, AfterSave::Nothing);
        kernel.send((2, 20)).expect("a receiver");
        assert!(saves.take_saved(false).is_empty(), "in order");
        assert!(saves.next_look(Instant::now()).is_some() && !saves.is_full());
        disk.send((5, 7)).expect("a receiver");
        let saved = saves.take_saved(false);
        let found: Vec<_> = saved.iter().map(|saved| (saved.snapshot.events, saved.total)).collect();
        assert_eq!((found, saved[0].snapshot.incident.as_deref()), (vec![(7, 27), (1, 8)], Some("id")));
        drop(saved);
        assert!(teller.recv().is_err(), "its sender is handed over");
        assert_eq!(saves.next_look(Instant::now()), None);
    }

    #[test]
    fn without_the_consumer_nothing_is_saved_and_without_the_kernels_thread_the_rest() {
        let mut saves = PendingSaves::default();
        let gone = || mpsc::channel().1;
        saves.add((gone(), None), None, AfterSave::Nothing);
        let (consumer, receiver) = mpsc::channel();
        consumer.send((3, 3)).expect("a receiver");
        saves.add((receiver, Some(gone())), None, AfterSave::Nothing);
        let saved = saves.take_saved(true);
        assert_eq!(saved.iter().map(|saved| saved.total).collect::<Vec<_>>(), [3]);
        for _ in 0..MAX_SAVES {
            assert!(!saves.is_full());
            saves.add((gone(), None), None, AfterSave::Nothing);
        }
        assert!(saves.is_full());
    }
}
