//! Commands to the consumer, and the sender that wakes it only for urgent ones.

use std::{
    sync::mpsc::{self, Receiver, SendError, Sender},
    thread::Thread,
};

use tompion_manifest::{Child, CommandEnd, Program, Snapshot};

use super::RecordingSummary;
use crate::{kernel::Outcome as KernelOutcome, process::Process, untraced::Listed};

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
    /// Save what the flight recorders hold.
    Snapshot(Sender<u64>),
    /// Note in the manifest that a snapshot is on disk.
    NoteSnapshot(Snapshot),
    /// A source that another thread has recorded is complete.
    Recorded(Box<KernelOutcome>),
    /// Complete everything.
    Finish(Sender<RecordingSummary>),
}

impl ConsumerCommand {
    /// Whether a thread or a program waits for its effect.
    const fn is_urgent(&self) -> bool {
        matches!(self, Self::Snapshot(_) | Self::NoteSnapshot(_) | Self::Finish(_))
    }
}

/// Sender of commands. It wakes the consumer for urgent ones; the others wait for its next poll, a
/// few milliseconds. Short processes send three each: the wake-ups would cost more than the work.
#[derive(Clone, Debug)]
pub struct CommandSender {
    sender: Sender<ConsumerCommand>,
    consumer: Thread,
}

impl CommandSender {
    /// Sends a command.
    ///
    /// # Errors
    /// The command, if the consumer has ended.
    pub fn send(&self, command: ConsumerCommand) -> Result<(), SendError<ConsumerCommand>> {
        let is_urgent = command.is_urgent();
        self.sender.send(command)?;
        if is_urgent {
            self.consumer.unpark();
        }
        Ok(())
    }
}

/// Begins a thread that is given the commands. It must never block on the receiver, but park
/// between its polls: a blocked receiver would be woken by each command.
///
/// # Errors
/// The thread can't be started.
pub fn start(
    run: impl FnOnce(Receiver<ConsumerCommand>) + Send + 'static,
) -> std::io::Result<(CommandSender, std::thread::JoinHandle<()>)> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("consumer".into()).spawn(move || run(receiver))?;
    Ok((CommandSender { sender, consumer: thread.thread().clone() }, thread))
}
