//! Snapshots that are not over: those that were asked for and are not saved yet, because a disk may
//! hang, and those that go on for a time. The control thread waits for neither, so that programs
//! which start meanwhile are admitted.

use std::{
    sync::mpsc::{Receiver, Sender, TryRecvError},
    time::{Duration, Instant},
};

use tompion_manifest::Snapshot;

/// Maximum number of snapshots that wait for a disk, and of those that go on at the same time.
pub const MAX_SAVES: usize = 64;
const MAX_WINDOWS: usize = 64;
/// Time after which a disk counts as slow, and intervals between two looks before and after that.
const SLOW_TIME: Duration = Duration::from_millis(100);
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
const LONG_INTERVAL: Duration = Duration::from_millis(20);

/// Events that a thread has saved: of the snapshot, and of all so far.
type Events = (u64, u64);

/// Consequence of a snapshot, once it is saved.
#[derive(Debug)]
pub enum AfterSave {
    /// Nothing.
    Nothing,
    /// The number of its events is sent.
    Tell(Sender<u64>),
    /// It goes on until a time; then the number of all of its events is sent.
    GoOn(Instant, Option<Sender<u64>>),
    /// It has ended snapshots that went on.
    End(Vec<Window>),
}

/// A snapshot that goes on until a time.
#[derive(Debug)]
pub struct Window {
    due: Instant,
    /// Events that had been saved before it.
    before: u64,
    done: Option<Sender<u64>>,
}

/// Snapshot that is saved.
#[derive(Debug)]
pub struct Saved {
    /// Its entry in the manifest.
    pub snapshot: Snapshot,
    /// Events of all snapshots so far.
    total: u64,
    then: AfterSave,
}

/// Snapshots of a recording that are not over.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Those that are being saved, in their order.
    saves: Vec<PendingSave>,
    /// Those that go on.
    windows: Vec<Window>,
}

#[derive(Debug)]
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
#[derive(Debug)]
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

impl Snapshots {
    /// Whether no further one may wait.
    pub fn is_full(&self) -> bool {
        self.saves.len() >= MAX_SAVES
    }

    /// Adds a snapshot that was asked of the consumer, and of the kernel's thread if there is one.
    pub fn add(
        &mut self,
        (consumer, kernel): (Receiver<Events>, Option<Receiver<Events>>),
        incident: Option<String>,
        then: AfterSave,
    ) {
        self.saves.push(PendingSave {
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
    pub fn take_saved(&mut self, waits: bool) -> Vec<Saved> {
        let is_pending = |save: &mut PendingSave| {
            let is_over = save.consumer.is_over(waits);
            !(is_over && save.kernel.as_mut().is_none_or(|part| part.is_over(waits)))
        };
        let count = self.saves.iter_mut().position(is_pending).unwrap_or(self.saves.len());
        let saved = self.saves.drain(..count).filter_map(|save| {
            let (events, total) = save.consumer.events()?;
            let (of_kernel, all_of_kernel) = save.kernel.and_then(|part| part.events()).unwrap_or_default();
            let (begun_ns, incident) = (save.begun_ns, save.incident);
            let snapshot = Snapshot { begun_ns, events: events + of_kernel, incident };
            Some(Saved { snapshot, total: total + all_of_kernel, then: save.then })
        });
        saved.collect()
    }

    /// Does what follows a snapshot.
    pub fn follow(&mut self, saved: Saved) {
        let Saved { snapshot, total, then } = saved;
        // Programs that asked may have gone.
        match then {
            AfterSave::Nothing => {}
            AfterSave::Tell(done) => drop(done.send(snapshot.events)),
            AfterSave::GoOn(due, done) => {
                self.windows.push(Window { due, before: total - snapshot.events, done });
            }
            AfterSave::End(windows) => {
                for Window { before, done, .. } in windows {
                    let _ = done.map(|done| done.send(total.saturating_sub(before)));
                }
            }
        }
    }

    /// Whether another snapshot can go on.
    pub fn can_go_on(&self) -> bool {
        self.windows.len() < MAX_WINDOWS
    }

    /// Takes those that have gone on for their time.
    pub fn take_over(&mut self, now: Instant) -> Vec<Window> {
        let (over, rest) = std::mem::take(&mut self.windows).into_iter().partition(|it| it.due <= now);
        self.windows = rest;
        over
    }

    /// Time of the next look.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        let of_save = self.saves.first().map(|save| {
            let is_slow = now.saturating_duration_since(save.since) >= SLOW_TIME;
            now + if is_slow { LONG_INTERVAL } else { SHORT_INTERVAL }
        });
        self.windows.iter().map(|window| window.due).chain(of_save).min()
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
        let (sender, teller) = mpsc::channel();
        let mut saves = Snapshots::default();
        assert_eq!(saves.next_look(Instant::now()), None);
        saves.add((consumer, Some(of_kernel)), Some("id".into()), AfterSave::Tell(sender));
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
        saved.into_iter().for_each(|saved| saves.follow(saved));
        assert_eq!(teller.recv(), Ok(7));
        assert_eq!(saves.next_look(Instant::now()), None);
    }

    #[test]
    fn without_the_consumer_nothing_is_saved_and_without_the_kernels_thread_the_rest() {
        let mut saves = Snapshots::default();
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

    #[test]
    fn a_snapshot_that_goes_on_tells_all_of_its_events() {
        let mut saves = Snapshots::default();
        let (sender, teller) = mpsc::channel();
        let now = Instant::now();
        for (events, then) in [((5, 25), AfterSave::GoOn(now, Some(sender))), ((2, 27), AfterSave::Nothing)] {
            let (consumer, receiver) = mpsc::channel();
            consumer.send(events).expect("a receiver");
            saves.add((receiver, None), None, then);
        }
        saves.take_saved(true).into_iter().for_each(|saved| saves.follow(saved));
        assert_eq!((saves.next_look(now), saves.can_go_on()), (Some(now), true));
        let over = saves.take_over(now);
        assert_eq!((over.len(), saves.next_look(now)), (1, None));
        let (consumer, receiver) = mpsc::channel();
        consumer.send((3, 30)).expect("a receiver");
        saves.add((receiver, None), None, AfterSave::End(over));
        saves.take_saved(true).into_iter().for_each(|saved| saves.follow(saved));
        assert_eq!(teller.recv(), Ok(10), "behind the first 20");
    }
}
