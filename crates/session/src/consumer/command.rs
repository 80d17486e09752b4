//! Commands to the consumer, and the sender that wakes it only for urgent ones.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
        mpsc::{self, Receiver, SendError, Sender, TryRecvError},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use tompion_calls::CommittedChunk;
use tompion_control::{EventCounts, Status};
use tompion_kernel_trace::{ChunkControl, Outcome as KernelOutcome};
use tompion_lineage::untraced::Listed;
use tompion_manifest::{Child, CommandEnd, Firing, Program, Snapshot};
use tompion_protocol::rules::Rules;

use super::{
    RecordingSummary,
    policy::{IDLE_SLEEP, SLEEP},
    triggers::NewTriggers,
};
use crate::{backing::ProcessEntry, process::Process, recover::LostProcess};

/// Command to the consumer.
#[derive(Debug)]
pub enum ConsumerCommand {
    /// A process was welcomed.
    Joined(Box<Process>),
    /// The conversation with a process is over.
    Disconnected(u64),
    /// A process has ended, and how.
    Ended(u64, String),
    /// So many processes more could not take part; less, if one could after all.
    ProcessRejected(i64),
    /// A problem was suppressed, after many others.
    ProblemSuppressed,
    /// Note in the manifest how the command ended, which programs were executed, and which children
    /// there were.
    Executed(Option<CommandEnd>, Listed<Program>, Listed<Child>),
    /// Save what the flight recorders hold, and say how many events that were, and how many there
    /// are in all.
    Snapshot(Sender<(u64, u64)>),
    /// Save what flight recorders record until this time before it is overwritten.
    KeepSaving(Instant),
    /// Drop the open chunk, or the history of flight recorders.
    Clear(Sender<()>),
    /// Note in the manifest that a trigger has fired.
    NoteFiring(Box<Firing>),
    /// Note in the manifest how many occurrences no firing counts, for the recording ends.
    NoteSuppressed(u64),
    /// Note in the manifest that a snapshot is on disk.
    NoteSnapshot(Snapshot),
    /// End the open chunk and begin the next.
    Rotate(Sender<CommittedChunk>),
    /// Add to the state of the recording what the consumer knows, and send it.
    Status(Box<Status>, Sender<Status>),
    /// Say how many events of each name were converted.
    CountEvents(Sender<EventCounts>),
    /// Replace the rules of all processes.
    SetRules(Box<Rules>),
    /// Replace the triggers.
    SetTriggers(Box<NewTriggers>),
    /// Note in the manifest that other kernel events were chosen, by these words.
    NoteKernelEvents(Box<Rules>, Vec<String>),
    /// A process of a recorder that was killed has lost its rings. Its entry goes once the manifest
    /// tells of it.
    Lost(Box<LostProcess>, Option<ProcessEntry>),
    /// All processes of a recorder that was killed have joined or are lost: chunks may end.
    TakenOver,
    /// Say how many events of programs were lost.
    CountLosses(Sender<u64>),
    /// Complete all processes, and reply with the number of lost events. Their connections must be
    /// closed.
    CompleteProcesses(Sender<u64>),
    /// The kernel takes part in the recording's chunks.
    KernelBegins(ChunkControl),
    /// A source that another thread has recorded is complete.
    Recorded(Box<KernelOutcome>),
    /// Complete everything.
    Finish(Sender<RecordingSummary>),
}

impl ConsumerCommand {
    /// Whether a thread or a program waits for its effect.
    const fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Snapshot(_)
                | Self::NoteSnapshot(_)
                | Self::KeepSaving(_)
                | Self::Clear(_)
                | Self::Rotate(_)
                | Self::Status(..)
                | Self::CountEvents(_)
                | Self::SetRules(_)
                | Self::SetTriggers(_)
                | Self::CountLosses(_)
                | Self::CompleteProcesses(_)
                | Self::Finish(_)
        )
    }
}

/// Sender of commands. It wakes the consumer for urgent ones, and for any while no process is
/// recorded. The others wait for its next poll, 4 ms at most, or 10 ms where jobs are sent. Short
/// processes send three each: the wake-ups would cost more than the work.
#[derive(Clone, Debug)]
pub struct CommandSender {
    sender: Sender<ConsumerCommand>,
    consumer: Thread,
    is_idle: Arc<AtomicBool>,
}

impl CommandSender {
    /// Sends a command.
    ///
    /// # Errors
    /// The command, if the consumer has ended.
    pub fn send(&self, command: ConsumerCommand) -> Result<(), SendError<ConsumerCommand>> {
        let is_urgent = command.is_urgent();
        self.sender.send(command)?;
        // Ordering: pairs with the fence in `serve`. Either this sees that the consumer is idle, or
        // the consumer sees the command before it parks.
        fence(Ordering::SeqCst);
        if is_urgent || self.is_idle.load(Ordering::Relaxed) {
            self.consumer.unpark();
        }
        Ok(())
    }
}

/// Starts the thread that is given the commands. It must never block on the receiver, but park
/// between its polls: a blocked receiver would be woken by each command.
///
/// # Errors
/// The thread can't be started.
pub fn start(run: impl FnOnce(Commands) + Send + 'static) -> io::Result<(CommandSender, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::channel();
    let is_idle = Arc::<AtomicBool>::default();
    let commands = Commands { receiver, is_idle: is_idle.clone() };
    let thread = thread::Builder::new().name("consumer".into()).spawn(move || run(commands))?;
    Ok((CommandSender { sender, consumer: thread.thread().clone(), is_idle }, thread))
}

/// Receiver of commands.
#[derive(Debug)]
pub struct Commands {
    receiver: Receiver<ConsumerCommand>,
    /// Whether the thread sleeps for so long that any command is to wake it.
    is_idle: Arc<AtomicBool>,
}

/// Thread's state that follows commands and polls at times of its own.
pub trait CommandServer {
    /// Follows a command. Returns the receiver of the summary if everything is to be completed.
    fn follow(&mut self, command: ConsumerCommand) -> Option<Sender<RecordingSummary>>;

    /// Polls. Returns the time until the next poll, given the one before this poll.
    fn poll(&mut self, interval: Duration) -> Duration;
}

/// Follows commands and polls until everything is to be completed, and returns the summary's
/// receiver; none if all senders are gone. Polls are on time however many commands come.
pub fn serve(commands: &Commands, server: &mut impl CommandServer) -> Option<Sender<RecordingSummary>> {
    let mut interval = SLEEP.0;
    let mut due = Instant::now() + interval;
    loop {
        match commands.receiver.try_recv() {
            Ok(command) => {
                if let Some(done) = server.follow(command) {
                    return Some(done);
                }
                // It may have ended the idleness.
                due = due.min(Instant::now() + SLEEP.1);
            }
            Err(TryRecvError::Empty) => thread::park_timeout(due.saturating_duration_since(Instant::now())),
            Err(TryRecvError::Disconnected) => return None,
        }
        if Instant::now() >= due {
            interval = server.poll(interval);
            due = Instant::now() + interval;
            let is_idle = interval >= IDLE_SLEEP;
            if is_idle != commands.is_idle.load(Ordering::Relaxed) {
                commands.is_idle.store(is_idle, Ordering::Relaxed);
                // Ordering: pairs with the fence of `send`, before the next look for a command.
                fence(Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Server that takes a millisecond for each command and polls as often.
    #[derive(Default)]
    struct SlowServer {
        commands: u32,
        polls: u32,
    }

    impl CommandServer for SlowServer {
        fn follow(&mut self, command: ConsumerCommand) -> Option<Sender<RecordingSummary>> {
            thread::sleep(Duration::from_millis(1));
            self.commands += 1;
            match command {
                ConsumerCommand::Finish(done) => Some(done),
                _ => None,
            }
        }

        fn poll(&mut self, _interval: Duration) -> Duration {
            self.polls += 1;
            Duration::from_millis(1)
        }
    }

    fn commands(receiver: Receiver<ConsumerCommand>) -> Commands {
        Commands { receiver, is_idle: Arc::default() }
    }

    /// Server that has nothing to do.
    struct IdleServer(Sender<&'static str>);

    impl CommandServer for IdleServer {
        fn follow(&mut self, command: ConsumerCommand) -> Option<Sender<RecordingSummary>> {
            let _ = self.0.send("command");
            match command {
                ConsumerCommand::Finish(done) => Some(done),
                _ => None,
            }
        }

        fn poll(&mut self, _interval: Duration) -> Duration {
            let _ = self.0.send("poll");
            Duration::from_secs(3600)
        }
    }

    #[test]
    fn an_idle_thread_is_woken_by_any_command_and_polls_after_it() {
        let (report, reports) = mpsc::channel();
        let run = move |commands: Commands| drop(serve(&commands, &mut IdleServer(report)));
        let (sender, thread) = start(run).expect("a thread");
        let next = || reports.recv_timeout(Duration::from_secs(30)).expect("a report");
        assert_eq!(next(), "poll");
        for _ in 0..100 {
            sender.send(ConsumerCommand::ProblemSuppressed).expect("a thread");
            assert_eq!((next(), next()), ("command", "poll"));
        }
        sender.send(ConsumerCommand::Finish(mpsc::channel().0)).expect("a thread");
        thread.join().expect("its end");
    }

    #[test]
    fn a_flood_of_commands_does_not_keep_polls_from_being_made() {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..100 {
            sender.send(ConsumerCommand::ProblemSuppressed).expect("a receiver");
        }
        sender.send(ConsumerCommand::Finish(mpsc::channel().0)).expect("a receiver");
        let mut server = SlowServer::default();
        assert!(serve(&commands(receiver), &mut server).is_some());
        assert_eq!(server.commands, 101);
        assert!(server.polls >= 50, "{} polls", server.polls);
    }

    #[test]
    fn a_server_without_senders_ends() {
        let (sender, receiver) = mpsc::channel();
        sender.send(ConsumerCommand::ProblemSuppressed).expect("a receiver");
        drop(sender);
        assert!(serve(&commands(receiver), &mut SlowServer::default()).is_none());
    }

    #[test]
    fn only_urgent_commands_wake_the_thread() {
        let (report, woken) = mpsc::channel();
        let run = move |commands: Commands| {
            while report.send(()).is_ok() && !commands.receiver.try_iter().any(|command| command.is_urgent())
            {
                thread::park();
            }
        };
        let (commands, thread) = start(run).expect("a thread");
        woken.recv().expect("the thread has begun");
        commands.send(ConsumerCommand::ProblemSuppressed).expect("a thread");
        assert!(woken.recv_timeout(Duration::from_millis(50)).is_err(), "woken by a command");
        commands.send(ConsumerCommand::Snapshot(mpsc::channel().0)).expect("a thread");
        assert!(woken.recv_timeout(Duration::from_secs(30)).is_ok(), "not woken by an urgent command");
        thread.join().expect("no panic");
    }
}
