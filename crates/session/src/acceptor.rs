//! Acceptor of clients: admits processes that may take part, and gives them their memory.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::RandomState,
    io,
    os::fd::AsFd,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use tompion_keeper::Keeper;
use tompion_lineage::{
    self as lineage, Lineage,
    proc_files::parent_of,
    untraced::Introductions,
    untrusted_text::{MAX_NAME, MAX_PATH, MAX_REASON, tidy},
};
use tompion_os::{Heard, Listener, PacketSocket, Peer, Poller, ProcessWatch};
use tompion_protocol::{
    message::{Hello, MAX_MESSAGE, MessageError, Origin, ToAgent, ToSession},
    rules::Rules,
};

mod admission;

use crate::{
    backing,
    budget::Shared,
    consumer::{CommandSender, ConsumerCommand},
    entrances::{Entrance, Entrances, Refusal},
    handshakes::{Connection, PendingHandshakes},
    memory::{Expected, MappedMemory, PreparedMemory},
    messages::reason,
    pace::Pace,
    process::Process,
    ring_budget::{RingBudget, RingShare},
    session_config::SessionConfig,
    target::{self, Admission},
};

pub(crate) mod adopt;
mod changes;
mod sharing;

/// Maximum number of problems that are reported one by one.
const MAX_PROBLEMS: usize = 100;
/// Maximum number of connections accepted before other work is done.
const MAX_AT_ONCE: usize = 64;
/// Maximum number of recordings of one process that it has left behind: one for each program that
/// it was before it executed the next.
const MAX_STALE_CLIENTS: usize = 8;
/// Maximum number of times that a process can take part.
const MAX_JOINS: u32 = 1000;
/// Maximum number of sockets of ended processes that are read because their children hold them
/// open.
const MAX_INHERITED_SOCKETS: usize = 1024;
/// Processes that could not take part, of which old ones are forgotten.
const MANY_REJECTED: usize = 1 << 14;
/// A process's number is not another one's so soon.
const PID_REUSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A process that takes part, as the control thread knows it.
#[derive(Debug)]
struct Client {
    pid: u32,
    name: String,
    lineage: Lineage,
    socket: Option<Arc<PacketSocket>>,
    /// Tells its end; none if it had ended and was waited for before its `Hello` was read.
    watch: Option<ProcessWatch>,
    /// Whether the recording ends without it: a set has it, and the command has not started it.
    is_besides_command: bool,
}

/// A client that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// Its id.
    pub pid: u32,
    /// Its exit status.
    pub status: ExitStatus,
}

/// A process that has sent a `Hello`.
struct Introduction<'a> {
    socket: &'a PacketSocket,
    hello: &'a Hello,
    peer: Peer,
    key: u64,
    lineage: &'a Lineage,
    watch: Option<&'a ProcessWatch>,
}

/// Record of a process's participations.
#[derive(Debug, Default)]
struct JoinCount {
    count: u32,
    /// Memory of its descriptions, all participations together.
    budget: Shared,
}

/// Conversation of a client that has ended.
#[derive(Debug)]
struct InheritedSocket {
    socket: Arc<PacketSocket>,
    /// As of the client.
    is_besides_command: bool,
}

/// Acceptor of the session's clients.
#[derive(Debug)]
pub struct ClientAcceptor {
    config: SessionConfig,
    /// Sockets that programs connect to.
    entrances: Entrances,
    /// Connections without a `Hello` so far.
    handshakes: PendingHandshakes,
    clients: HashMap<u64, Client>,
    /// Participations of each living process.
    join_counts: HashMap<u32, JoinCount>,
    /// Processes that could not take part, and when: each counts once.
    rejected_processes: HashMap<u32, Instant>,
    /// Room for the descriptions of each user's processes, and of all.
    user_budgets: HashMap<u32, Shared>,
    budget: Shared,
    /// Conversations of clients that have ended, which their children hold open until they
    /// introduce themselves.
    inherited_sockets: BTreeMap<u64, InheritedSocket>,
    /// Memory of all rings, where it is limited.
    ring_budget: Option<RingBudget>,
    /// The kernel's share of it.
    kernel_rings: Option<RingShare>,
    /// Memory for the next children of clients.
    prepared: PreparedMemory,
    /// Pace at which they come.
    pub pace: Pace,
    next_key: u64,
    commands: CommandSender,
    /// Names of sources' folders that are taken, by their hashes: programs make up any number of
    /// them.
    folders: HashSet<u64>,
    hasher: RandomState,
    /// Problems for users, one line each.
    pub problems: Vec<String>,
    /// Number of processes that took part.
    pub admitted: u64,
    /// Programs that sent a `Hello`.
    pub introductions: Introductions,
}

/// Meaning of a descriptor in the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A connection waits.
    Listener,
    /// A signal arrived.
    Signals,
    /// Another program calls.
    Calls,
    /// Events have matched triggers.
    Matches,
    /// A client said something.
    Socket(u64),
    /// A client ended.
    Watch(u64),
}

impl Interest {
    /// As a number for the poller.
    pub const fn to_number(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Signals => 1,
            // Clients have keys from 1 on.
            Self::Calls => 2,
            Self::Matches => 3,
            Self::Socket(key) => key * 2 + 2,
            Self::Watch(key) => key * 2 + 3,
        }
    }

    /// From the poller's number.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Calls,
            3 => Self::Matches,
            number if number % 2 == 0 => Self::Socket((number - 2) / 2),
            number => Self::Watch((number - 3) / 2),
        }
    }
}

impl ClientAcceptor {
    /// Begins to accept connections of processes that know the listener's name.
    pub fn open(
        listener: Listener,
        config: SessionConfig,
        commands: CommandSender,
        poller: &Poller,
    ) -> io::Result<Self> {
        let interest = Interest::Listener.to_number();
        let entrances = Entrances::new(listener, config.keeper.clone(), poller, interest)?;
        Ok(Self {
            ring_budget: config.memory.map(RingBudget::new),
            kernel_rings: None,
            config,
            entrances,
            handshakes: PendingHandshakes::default(),
            clients: HashMap::new(),
            join_counts: HashMap::new(),
            rejected_processes: HashMap::new(),
            user_budgets: HashMap::new(),
            budget: Shared::default(),
            inherited_sockets: BTreeMap::new(),
            prepared: PreparedMemory::default(),
            pace: Pace::default(),
            next_key: 0,
            commands,
            folders: HashSet::new(),
            hasher: RandomState::new(),
            problems: Vec::new(),
            admitted: 0,
            introductions: Introductions::default(),
        })
    }

    /// Number of refused programs by reason.
    pub fn refusals(&self) -> Vec<tompion_control::Refusal> {
        self.entrances.refusals()
    }

    /// Also listens where all programs look that start later: in a folder, and under a name of each
    /// user of the session. Returns what is in the way of that.
    ///
    /// # Errors
    /// If there is no folder, and the names are taken by other sessions.
    pub fn listen_for_programs(&mut self, label: &str, poller: &Poller) -> io::Result<Option<String>> {
        let granted = self.config.programs.as_ref().and_then(|it| it.limit().map(<[u32]>::to_vec));
        let no_folder = self.entrances.open_join_sockets(label, granted.as_deref(), poller);
        self.keep_join_socket();
        if let Some(reason) = no_folder.as_ref().filter(|_| self.config.programs.is_some()) {
            self.problems.push(format!("programs find no join socket, only abstract names: {reason}"));
        }
        let mut obstacle = None;
        // By a grant, none of root's names are taken.
        let is_reached = |user: &&u32| granted.as_ref().is_none_or(|users| users.contains(user));
        for user in self.config.users.iter().filter(is_reached).copied().collect::<Vec<_>>() {
            match (self.entrances.open_numbered(user, poller), &no_folder) {
                // Programs that see the folder look no further.
                (Err(_) | Ok(Some(_)), None) => {}
                (found, Some(reason)) => {
                    let reason = |obstacle| format!("{obstacle}; and no join socket can be made: {reason}");
                    obstacle = found?.map(reason).or(obstacle);
                }
                (Ok(None), None) => {}
            }
        }
        Ok(obstacle)
    }

    /// Notes the command's process for a recorder that comes back.
    pub fn keep_command(&mut self, pid: u32) {
        if let (Some(folder), Some(_)) = (&self.config.backing, &self.config.keeper) {
            if let Err(error) = backing::keep_command(folder, pid) {
                self.report_problem(format!(
                    "a recorder that comes back won't wait for the command: {error}"
                ));
            }
        }
    }

    /// Whether programs that start find the session in the folder where they look.
    pub fn has_join_socket(&self) -> bool {
        self.entrances.join_socket().is_some()
    }

    /// Notes the join socket for a recorder that comes back.
    fn keep_join_socket(&mut self) {
        let (backing, name) = (self.config.backing.as_ref(), self.entrances.join_socket());
        let (Some(folder), Some(name), Some(_)) = (backing, name, &self.config.keeper) else { return };
        if let Err(error) = backing::keep_join_socket(folder, name) {
            self.report_problem(format!("a recorder that comes back leaves its join socket behind: {error}"));
        }
    }

    /// The keeper of the processes' memory, if there is one.
    pub fn keeper(&self) -> Option<Arc<Keeper>> {
        self.config.keeper.clone()
    }

    /// The present rules.
    pub fn rules(&self) -> &Rules {
        &self.config.rules
    }

    /// Whether there is anything to wait for: a client that is alive, the child of one that may
    /// still connect, or a pending handshake.
    pub fn expects_events(&self) -> bool {
        self.clients.values().any(|client| !client.is_besides_command)
            || self.inherited_sockets.values().any(|inherited| !inherited.is_besides_command)
            || !self.handshakes.is_empty()
    }

    /// Time at which the first pending handshake times out.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.handshakes.next_timeout()
    }

    /// Names of the clients that are still alive, with their pids.
    pub fn living(&self) -> Vec<String> {
        // The end of some may not have been noticed yet.
        let lives = |client: &&Client| client.watch.as_ref().is_some_and(|watch| !watch.has_ended());
        let living = self.clients.values().filter(lives);
        living.map(|client| format!("{} ({})", client.name, client.pid)).collect()
    }

    /// Accepts all connections that wait. A client that sends no `Hello` delays no other one.
    pub fn accept_pending(&mut self, poller: &Poller) {
        for index in 0..self.entrances.count() {
            for _ in 0..MAX_AT_ONCE {
                match self.entrances.accept(index) {
                    Ok(Some((entrance, socket))) => self.accept_connection(entrance, socket, poller),
                    Ok(None) => break,
                    Err(error) => {
                        // Out of descriptors or memory: programs wait for a while before they give
                        // up.
                        self.report_problem(format!("can't let a program in: {error}"));
                        std::thread::sleep(ACCEPT_RETRY_INTERVAL);
                        break;
                    }
                }
            }
        }
    }

    /// Adds a connection to the pending handshakes, if there is room. The one that makes room for
    /// it is the oldest.
    fn accept_connection(&mut self, entrance: Entrance, socket: PacketSocket, poller: &Poller) {
        let Ok(peer) = socket.peer() else { return };
        if let Some(refusal) = self.refusal(entrance, &socket, peer) {
            // At once: it takes no place of those who wait, and keeps no recording from its end.
            let _ = socket.send(&ToAgent::Refused(refusal.text().into()).encode(), &[]);
            if entrance == Entrance::OwnName && refusal == Refusal::OtherUser {
                self.report_problem(format!("refused process {} of user {}", peer.pid, peer.uid));
            }
            return self.entrances.refuse(refusal);
        }
        if !self.handshakes.has_room_for(peer) {
            return self
                .report_problem(format!("process {} connects again and again without a message", peer.pid));
        }
        let key = self.new_key();
        // Most programs have sent their `Hello` by now.
        self.begin_handshake(key, Connection::new(socket, peer), poller);
        if let Some(oldest) = self.handshakes.oldest_excess() {
            self.read_handshake(oldest, poller);
            let silent = self.handshakes.take(oldest, poller);
            silent.into_iter().for_each(|connection| self.report_silence(connection.peer));
        }
    }

    fn report_silence(&mut self, peer: Peer) {
        self.report_problem(format!("process {} connected and sent no message", peer.pid));
    }

    /// Drops pending handshakes that have timed out.
    pub fn drop_timed_out(&mut self, poller: &Poller) {
        while let Some(key) = self.handshakes.late() {
            self.read_handshake(key, poller);
            let silent = self.handshakes.take(key, poller);
            silent.into_iter().for_each(|connection| self.report_silence(connection.peer));
        }
    }

    /// Remembers a problem, once; of too many, that there were more.
    fn report_problem(&mut self, problem: String) {
        if self.problems.contains(&problem) {
            return;
        }
        let problem = match self.problems.len() {
            ..MAX_PROBLEMS => problem,
            _ => {
                let _ = self.commands.send(ConsumerCommand::ProblemSuppressed);
                "and more of that kind".to_owned()
            }
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Counts a process that is not recorded, and remembers why.
    fn reject(&mut self, problem: String) {
        log::debug!("not recorded: {problem}");
        self.report_problem(problem);
        let _ = self.commands.send(ConsumerCommand::ProcessRejected(1));
    }

    /// Counts a process that is not recorded, once: a child connects as what it was forked from,
    /// and once more as the program that it executes.
    fn reject_process(&mut self, pid: u32) {
        if self.is_client(pid) {
            return;
        }
        if self.rejected_processes.len() >= MANY_REJECTED {
            self.rejected_processes.retain(|_, when| when.elapsed() < PID_REUSE_TIMEOUT);
        }
        let before = self.rejected_processes.insert(pid, Instant::now());
        if before.is_none_or(|when| when.elapsed() >= PID_REUSE_TIMEOUT) {
            let _ = self.commands.send(ConsumerCommand::ProcessRejected(1));
        }
    }

    /// Reads the `Hello` of all pending handshakes that have sent it.
    pub fn read_handshakes(&mut self, poller: &Poller) {
        for key in self.handshakes.keys() {
            self.read_handshake(key, poller);
        }
    }

    fn read_handshake(&mut self, key: u64, poller: &Poller) {
        if let Some(connection) = self.handshakes.take(key, poller) {
            self.begin_handshake(key, connection, poller);
        }
    }

    /// Admits a client whose `Hello` is there. The handshakes of others are pending from now on.
    fn begin_handshake(&mut self, key: u64, connection: Connection, poller: &Poller) {
        let mut buffer = [0; MAX_MESSAGE];
        let packet = match connection.socket.hear(&mut buffer) {
            Heard::Packet(len) => buffer.get(..len).unwrap_or(&[]),
            // It probed whether a session listens here.
            Heard::End => return,
            Heard::Nothing => {
                if poller.add(connection.socket.as_fd(), Interest::Socket(key).to_number()).is_ok() {
                    self.handshakes.add(key, connection);
                }
                return;
            }
        };
        if let Ok(ToSession::Ask) = ToSession::decode(packet) {
            // It loads the library now, and connects again.
            let _ = connection.socket.send(&ToAgent::Join(String::new()).encode(), &[]);
            return;
        }
        if let Err(problem) = self.admit_client(connection.socket, connection.peer, packet, poller) {
            self.report_problem(problem);
        }
    }

    fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Makes the sender of a `Hello` a client, if it may be one. `packet` is its first message.
    fn admit_client(
        &mut self,
        socket: PacketSocket,
        peer: Peer,
        packet: &[u8],
        poller: &Poller,
    ) -> Result<(), String> {
        if !self.config.admission.admits(peer.pid) {
            let _ = socket.send(&ToAgent::Refused("a session for other processes".into()).encode(), &[]);
            if target::is_gone(peer.pid) {
                self.reject_process(peer.pid);
                return Err(format!("process {} had ended before it could join", peer.pid));
            }
            return Ok(());
        }
        if self.is_client(peer.pid) {
            // It found the session under two names.
            let _ = socket.send(&ToAgent::Refused("has joined already".into()).encode(), &[]);
            return Ok(());
        }
        let hello = read_hello(packet).and_then(|hello| match self.join_counts.get(&peer.pid) {
            Some(JoinCount { count: MAX_JOINS, .. }) => Err(format!("it has joined {MAX_JOINS} times")),
            _ => Ok(hello),
        });
        let hello = hello.map_err(|reason| {
            let _ = socket.send(&ToAgent::Refused(reason.clone()).encode(), &[]);
            format!("refused process {}: {reason}", peer.pid)
        })?;
        self.introductions.add(peer.pid, &hello.executable);
        self.pace.note(hello.prepared.is_none(), Instant::now());
        let hello = Hello { rseq: hello.rseq && self.config.rseq, ..hello };
        let (parent, prepared) = self.claim_prepared(&hello, peer)?.unzip();
        let lineage = self.lineage_of(peer.pid, parent);
        if prepared.is_none() && !socket.is_open() {
            // It has ended, or executes another program by now: nothing is to be made for it.
            self.reject_process(peer.pid);
            return Err(format!("{} ({}) had ended before it could join", hello.name, peer.pid));
        }
        let key = self.new_key();
        let watched = match (socket.peer_watch(), &prepared) {
            (Ok(watch), Some(_)) => Ok(Some(watch)),
            // It has ended and was waited for. Its events are in the memory.
            (Err(_), Some(_)) => Ok(None),
            (Ok(watch), None) if watch.has_ended() => {
                Err(io::Error::new(io::ErrorKind::NotFound, "it had ended before it could join"))
            }
            (watch, None) => watch.map(Some),
        };
        let shared = watched.and_then(|watch| {
            let (hello, lineage, seen) = (&hello, &lineage, watch.as_ref());
            let introduction = Introduction { socket: &socket, hello, peer, key, lineage, watch: seen };
            let recording = self.share_memory(&introduction, prepared)?;
            Ok((watch, recording))
        });
        let (watch, recording) = shared.map_err(|error| {
            let reason = reason(&error);
            let _ = socket.send(&ToAgent::Refused(reason.clone()).encode(), &[]);
            self.reject_process(peer.pid);
            if self.join_counts.get(&peer.pid).is_some_and(|it| it.count == 0) {
                self.join_counts.remove(&peer.pid);
            }
            format!("{} ({}) is not recorded: {reason}", hello.name, peer.pid)
        })?;
        let forked = (hello.origin == Origin::Fork && !hello.has_listener).then(|| Expected {
            writing: self.config.writing(&hello),
            cpu: hello.cpu,
            is_steady: false,
        });
        let socket = Arc::new(socket);
        let (name, open) = (hello.name.clone(), Some(socket.clone()));
        log::debug!("process {} ({name:?}) joined as number {key}, {:?}", peer.pid, hello.origin);
        let is_besides_command = self.config.has_command
            && self.config.programs.is_some()
            && !admission::is_own_descendant(peer.pid);
        let client =
            Client { pid: peer.pid, name, lineage: lineage.clone(), socket: open, watch, is_besides_command };
        self.add_client(key, client, poller)?;
        let mut process = Process::new(key, peer.pid, hello, Some(socket), recording);
        process.lineage = lineage;
        self.check_triggers(&process);
        // If the consumer is gone, the recording is over anyway.
        let _ = self.commands.send(ConsumerCommand::Joined(Box::new(process)));
        if self.clients.get(&key).is_some_and(|client| client.watch.is_none()) {
            self.join_counts.remove(&peer.pid);
            self.remove_client(key, poller, tompion_manifest::ENDED.into());
        }
        if let Some(expected) = forked {
            self.prepare_for_siblings(peer, parent, expected);
        }
        Ok(())
    }

    /// Says if a process looks for no triggers on events.
    fn check_triggers(&mut self, process: &Process) {
        if !self.config.event_triggers.is_empty() && !process.supports_triggers() {
            self.report_problem(format!(
                "triggers on events see nothing of {} ({}): its libtompion {} is older than they are",
                process.hello.name, process.pid, process.hello.agent_version
            ));
        }
    }

    /// The lineage of a process. The child of a known parent may have ended; it has its parent's
    /// command line.
    fn lineage_of(&self, pid: u32, parent: Option<u64>) -> Lineage {
        let parent = parent.and_then(|key| self.clients.get(&key));
        parent.map_or_else(
            || lineage::of(pid),
            |client| {
                let inner_pid = client.lineage.inner_pid.and_then(|_| lineage::inner_pid(pid));
                Lineage { parent: client.pid, inner_pid, ..client.lineage.clone() }
            },
        )
    }

    /// Finds the memory that a process has named, with its parent's key.
    fn claim_prepared(&mut self, hello: &Hello, peer: Peer) -> Result<Option<(u64, MappedMemory)>, String> {
        let Some(number) = hello.prepared else { return Ok(None) };
        let claimed = self.prepared.claim(number, self.config.writing(hello));
        claimed.map(Some).ok_or_else(|| {
            self.reject_process(peer.pid);
            format!("process {} names memory that was not prepared for it", peer.pid)
        })
    }

    /// Prepares memory for the next children of a process whose child this is.
    fn prepare_for_siblings(&mut self, child: Peer, parent: Option<u64>, expected: Expected) {
        if !self.config.users.contains(&child.uid) {
            // Whether it may join depends on processes that are alive.
            return;
        }
        let parent = parent.or_else(|| {
            let pid = parent_of(child.pid)?;
            let is_parent = |client: &Client| client.pid == pid && client.socket.is_some();
            let (key, _) = self.clients.iter().find(|(_, client)| is_parent(client))?;
            self.prepared.forget_taken(*key);
            Some(*key)
        });
        let client = parent.and_then(|key| self.clients.get_key_value(&key));
        let connection = client.and_then(|(key, client)| Some((*key, client.socket.as_deref()?)));
        if let Some((key, socket)) = connection {
            let expected = Expected { is_steady: self.pace.is_steady(Instant::now()), ..expected };
            self.prepared.prepare(key, socket, expected, &self.config);
        }
    }

    /// Notes that a process takes part.
    fn add_client(&mut self, key: u64, client: Client, poller: &Poller) -> Result<(), String> {
        let pid = client.pid;
        self.admitted += 1;
        if self.rejected_processes.remove(&pid).is_some_and(|when| when.elapsed() < PID_REUSE_TIMEOUT) {
            let _ = self.commands.send(ConsumerCommand::ProcessRejected(-1));
        }
        self.join_counts.entry(pid).or_default().count += 1;
        self.evict_stale_client(pid, poller);
        if let Admission::ProcessTree(heads) = &mut self.config.admission {
            // Its children are family even if it ends before them.
            if !heads.contains(&pid) {
                heads.push(pid);
            }
        }
        let add = |descriptor, interest: Interest| {
            poller.add(descriptor, interest.to_number()).map_err(|error| error.to_string())
        };
        if let Some(socket) = &client.socket {
            add(socket.as_fd(), Interest::Socket(key))?;
        }
        if let Some(watch) = &client.watch {
            add(watch.as_fd(), Interest::Watch(key))?;
        }
        self.clients.insert(key, client);
        Ok(())
    }

    /// Ends the oldest recording that a process has left behind, if there are many.
    fn evict_stale_client(&mut self, pid: u32, poller: &Poller) {
        let stale_clients =
            self.clients.iter().filter(|(_, client)| client.pid == pid && client.socket.is_none());
        let stale_clients: Vec<u64> = stale_clients.map(|(key, _)| *key).collect();
        if let (MAX_STALE_CLIENTS.., Some(oldest)) = (stale_clients.len(), stale_clients.into_iter().min()) {
            self.remove_client(oldest, poller, "became another program".into());
        }
    }

    /// Whether a process with this id talks to the session already. (One that has executed another
    /// program has closed its conversation.)
    fn is_client(&self, pid: u32) -> bool {
        let mut same = self.clients.values().filter(|client| client.pid == pid);
        same.any(|client| client.socket.as_ref().is_some_and(|socket| socket.is_open()))
    }

    /// Handles a message of a connection or a client, or its end.
    pub fn handle_message(&mut self, key: u64, poller: &Poller) {
        if self.handshakes.has(key) {
            return self.read_handshake(key, poller);
        }
        let mut buffer = [0; MAX_MESSAGE];
        if let Some(InheritedSocket { socket, .. }) = self.inherited_sockets.get(&key) {
            match socket.receive_bare(&mut buffer) {
                Some(len) => {
                    if let Some(reason) = child_failed(buffer.get(..len)) {
                        self.reject(format!("a child is not recorded: {reason}"));
                    }
                }
                None => {
                    poller.remove(socket.as_fd());
                    self.inherited_sockets.remove(&key);
                    self.prepared.orphan(key);
                }
            }
            return;
        }
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Some(socket) = &client.socket else { return };
        match socket.receive_bare(&mut buffer).and_then(|len| ToSession::decode(buffer.get(..len)?).ok()) {
            Some(ToSession::Failed(reason)) => {
                let reason = tidy(&reason, MAX_REASON);
                let problem = format!("{} ({}) is not recorded: {reason}", client.name, client.pid);
                self.reject(problem);
            }
            Some(ToSession::ChildFailed(reason)) => {
                let reason = tidy(&reason, MAX_REASON);
                let problem =
                    format!("a child of {} ({}) is not recorded: {reason}", client.name, client.pid);
                self.reject(problem);
            }
            Some(ToSession::Hello(_) | ToSession::Ask) => {}
            None => {
                poller.remove(socket.as_fd());
                client.socket = None;
                self.prepared.orphan(key);
                let _ = self.commands.send(ConsumerCommand::Disconnected(key));
            }
        }
    }

    /// Ends all conversations: agents stop recording as they notice.
    pub fn close(&mut self) {
        self.entrances.close();
        self.clients.clear();
        self.inherited_sockets.clear();
    }

    /// A client has ended; its parent may know how. Returns how, if that is known and it was not
    /// another program before.
    pub fn client_exited(
        &mut self,
        key: u64,
        poller: &Poller,
        parent: impl FnOnce(u32) -> Option<ExitStatus>,
    ) -> Option<Ended> {
        let client = self.clients.get(&key)?;
        let (pid, name) = (client.pid, client.name.clone());
        let is_last = !self.clients.iter().any(|(other, client)| client.pid == pid && *other > key);
        let known = || client.watch.as_ref().and_then(|watch| watch.end(pid));
        let status = parent(pid).or_else(known);
        self.join_counts.remove(&pid);
        let how = status.map_or_else(|| tompion_manifest::ENDED.into(), lineage::describe_end);
        self.remove_client(key, poller, how);
        status.filter(|_| is_last).map(|status| Ended { name, pid, status })
    }

    fn remove_client(&mut self, key: u64, poller: &Poller, how: String) {
        let Some(client) = self.clients.remove(&key) else { return };
        log::debug!("process {} (number {key}) left: {how}", client.pid);
        if let Some(watch) = &client.watch {
            poller.remove(watch.as_fd());
        }
        if let Some(socket) = client.socket {
            // Its end will be heard, now or when the last heir has closed it.
            let is_besides_command = client.is_besides_command;
            self.inherited_sockets.insert(key, InheritedSocket { socket, is_besides_command });
            if self.inherited_sockets.len() > MAX_INHERITED_SOCKETS {
                self.inherited_sockets
                    .pop_first()
                    .into_iter()
                    .for_each(|(_, oldest)| poller.remove(oldest.socket.as_fd()));
            }
        }
        let _ = self.commands.send(ConsumerCommand::Ended(key, how));
    }
}

/// Returns the reason why a child could not reach the session, if that is what its parent's message
/// says.
fn child_failed(packet: Option<&[u8]>) -> Option<String> {
    match ToSession::decode(packet?) {
        Ok(ToSession::ChildFailed(reason)) => Some(tidy(&reason, MAX_REASON)),
        _ => None,
    }
}

/// The first message of a process.
fn read_hello(packet: &[u8]) -> Result<Hello, String> {
    match ToSession::decode(packet) {
        Ok(ToSession::Hello(hello)) => Ok(Hello {
            name: tidy(&hello.name, MAX_NAME),
            executable: tidy(&hello.executable, MAX_PATH),
            agent_version: tidy(&hello.agent_version, MAX_NAME),
            ..hello
        }),
        Ok(_) => Err("expected a hello".into()),
        Err(MessageError::Version { found }) => Err(format!(
            "its libtompion speaks protocol {found}, this tompion {}: install the same version of both",
            tompion_protocol::PROTOCOL_VERSION
        )),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_survive_the_poller() {
        for interest in
            [Interest::Listener, Interest::Signals, Interest::Calls, Interest::Socket(1), Interest::Watch(7)]
        {
            assert_eq!(Interest::from_number(interest.to_number()), interest);
        }
    }
}
