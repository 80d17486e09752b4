//! Welcoming processes: who may take part, and the memory that they get.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::CStr,
    hash::{BuildHasher as _, RandomState},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering, mpsc::Sender},
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode,
    metadata::{EnvironmentValue, Uuid},
};
use tompion_layout::{LAYOUT_VERSION, control, record::WriteProtocol, ring::Geometry};
use tompion_os::{
    DirHandle, Heard, Listener, PacketSocket, Peer, Poller, ProcessWatch, SharedMap, create_memfd,
};
use tompion_protocol::{
    message::{Hello, MAX_MESSAGE, MessageError, ToAgent, ToSession},
    names,
    rules::Rules,
};

use crate::{
    backing::{ProcessBacking, SavedProcess},
    budget::{Budget, Shared},
    consumer::{Order, reason},
    context::Context,
    guests::Guests,
    jobs::JobTeller,
    listening, manifest,
    process::{self, Attention, Process},
    target::{self, Admission},
    untraced::Introductions,
    untrusted_text::{MOST_NAME, MOST_PATH, MOST_REASON, tidy},
};

/// How many problems are told one by one.
const MOST_PROBLEMS: usize = 100;
/// How many are let in before others are listened to.
const MOST_AT_ONCE: usize = 64;
/// How many recordings of one process are looked after that it has left behind: one for each program that it was
/// before it executed the next.
const MOST_FORMER: usize = 8;
/// How many times a process can take part.
const MOST_TIMES: u32 = 1000;
/// How many conversations of processes that have ended are heard, which their children hold open.
const MAX_HEIRS: usize = 1024;
/// Processes that could not take part, of which old ones are forgotten.
const MANY_LEFT_OUT: usize = 1 << 14;
/// A process's number is not another one's so soon.
const SAME_PROCESS: Duration = Duration::from_secs(5);
/// How long the door rests when nobody can be let in.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(5);

/// What every process of the session gets alike.
#[derive(Debug)]
pub struct Terms {
    /// Sizes of its rings.
    pub geometry: Geometry,
    /// Which events are recorded.
    pub rules: Rules,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// Whether events carry the id of their thread.
    pub tid: bool,
    /// What the trace has about the threads of events.
    pub contexts: Vec<Context>,
    /// Whether events carry the application's contexts.
    pub application_contexts: bool,
    /// Whether this machine's TSC is fit for timestamps.
    pub tsc: bool,
    /// Whether this machine's kernel restarts sections as it must.
    pub rseq: bool,
    /// Folder of the trace.
    pub folder: DirHandle,
    /// Name of the machine.
    pub hostname: String,
    /// Identifies the boot.
    pub boot_id: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds.
    pub clock_offset_ns: i64,
    /// User ids that may take part.
    pub users: Vec<u32>,
    /// Which of their processes may.
    pub admission: Admission,
    /// Folder in which the processes' memory is kept, if it is.
    pub backing: Option<DirHandle>,
    /// Where jobs are told; then nothing is written.
    pub jobs: Option<JobTeller>,
    /// The array whose first word selects the buffer, where that isn't for the session to say.
    pub selector: Option<Arc<OwnedFd>>,
}

/// A process that takes part, as the control thread knows it.
#[derive(Debug)]
struct Member {
    pid: u32,
    name: String,
    socket: Option<Arc<PacketSocket>>,
    watch: ProcessWatch,
}

/// How a process has taken part.
#[derive(Debug, Default)]
struct Participations {
    count: u32,
    /// What its descriptions take, all participations together.
    budget: Shared,
}

/// The session's door.
#[derive(Debug)]
pub struct Door {
    terms: Terms,
    /// Where programs knock: the session's own name, and others under which they look for it.
    listeners: Vec<Listener>,
    /// Who has knocked and not said anything yet.
    guests: Guests,
    members: HashMap<u64, Member>,
    /// How each living process has taken part.
    participations: HashMap<u32, Participations>,
    /// Processes that could not take part, and when: each counts once.
    left_out: HashMap<u32, Instant>,
    /// Room for the descriptions of each user's processes, and of all.
    user_budgets: HashMap<u32, Shared>,
    budget: Shared,
    /// Conversations of members that have ended, which their children hold open until they introduce
    /// themselves.
    heirs: BTreeMap<u64, Arc<PacketSocket>>,
    next_key: u64,
    orders: Sender<Order>,
    /// Names of sources' folders that are taken, by their hashes: programs make up any number of
    /// them.
    folders: HashSet<u64>,
    hasher: RandomState,
    /// What users should know, one line each.
    pub problems: Vec<String>,
    /// How many processes took part.
    pub welcomed: u64,
    /// Who knocked.
    pub introductions: Introductions,
}

/// What a descriptor in the poller stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Somebody knocks.
    Listener,
    /// A signal arrived.
    Signals,
    /// A member said something.
    Socket(u64),
    /// A member ended.
    Watch(u64),
}

impl Interest {
    /// As a number for the poller.
    pub const fn to_number(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Signals => 1,
            Self::Socket(key) => key * 2 + 2,
            Self::Watch(key) => key * 2 + 3,
        }
    }

    /// From the poller's number.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Listener,
            1 => Self::Signals,
            number if number % 2 == 0 => Self::Socket((number - 2) / 2),
            number => Self::Watch((number - 3) / 2),
        }
    }
}

impl Door {
    /// Opens the door: processes that know the listener's name may knock.
    pub fn open(
        listener: Listener,
        terms: Terms,
        orders: Sender<Order>,
        poller: &Poller,
    ) -> io::Result<Self> {
        listener.refuse_descriptors();
        poller.add(listener.as_fd(), Interest::Listener.to_number())?;
        Ok(Self {
            terms,
            listeners: vec![listener],
            guests: Guests::default(),
            members: HashMap::new(),
            participations: HashMap::new(),
            left_out: HashMap::new(),
            user_budgets: HashMap::new(),
            budget: Shared::default(),
            heirs: BTreeMap::new(),
            next_key: 0,
            orders,
            folders: HashSet::new(),
            hasher: RandomState::new(),
            problems: Vec::new(),
            welcomed: 0,
            introductions: Introductions::default(),
        })
    }

    /// Whether a process would be let in.
    pub fn seeks(&self, pid: u32) -> bool {
        target::is_of(pid, &self.terms.users) && self.terms.admission.lets_in(pid)
    }

    /// Also listens where all programs look that the session's users start. Returns what is in the
    /// way of that, where other users have all those names.
    pub fn open_to_programs(&mut self, poller: &Poller) -> io::Result<Option<String>> {
        const MAX: u32 = names::MAX_OPEN_SESSIONS;
        let mut obstacle = None;
        for user in &self.terms.users {
            let names = (0..MAX).map(|number| names::open_session(*user, number));
            let search = listening::listen(names, *user, MAX)?;
            let stranger = search.describe_stranger();
            match search.found {
                Some((_, listener)) => {
                    listener.refuse_descriptors();
                    poller.add(listener.as_fd(), Interest::Listener.to_number())?;
                    self.listeners.push(listener);
                }
                None if search.strangers == 0 => {
                    let text = format!("{MAX} sessions already record the programs of user {user}");
                    return Err(io::Error::other(text));
                }
                None => {
                    let first = names::open_session(*user, 0);
                    let count = search.strangers;
                    obstacle = Some(format!(
                        "{count} of the {MAX} names where programs of user {user} look for sessions \
                         ({first} to {}) are taken {stranger}",
                        MAX - 1
                    ));
                }
            }
        }
        Ok(obstacle)
    }

    /// Whether there is somebody to wait for: a member that is alive, the child of one that may still knock, or
    /// somebody who has knocked.
    pub fn expects_events(&self) -> bool {
        !self.members.is_empty() || !self.heirs.is_empty() || !self.guests.is_empty()
    }

    /// When somebody who has knocked must have said something.
    pub fn patience_ends(&self) -> Option<Instant> {
        self.guests.patience_ends()
    }

    /// Names of the members that are still alive, with their pids.
    pub fn living(&self) -> Vec<String> {
        self.members.values().map(|member| format!("{} ({})", member.name, member.pid)).collect()
    }

    /// Lets everybody in who knocks. Who doesn't introduce himself keeps nobody else waiting.
    pub fn answer(&mut self, poller: &Poller) {
        for index in 0..self.listeners.len() {
            for _ in 0..MOST_AT_ONCE {
                match self.listeners[index].accept() {
                    Ok(Some(socket)) => self.let_in(socket, poller),
                    Ok(None) => break,
                    Err(error) => {
                        // Out of descriptors or memory: programs wait for a while before they give up.
                        self.complain(format!("can't let a program in: {error}"));
                        std::thread::sleep(REST_AFTER_FAILURE);
                        break;
                    }
                }
            }
        }
    }

    /// Makes somebody a guest, if there is room. Who goes for that was silent for long, or has said something.
    fn let_in(&mut self, socket: PacketSocket, poller: &Poller) {
        let Ok(peer) = socket.peer() else { return };
        if !self.believes(&socket, peer) {
            // At once: it takes no place of those who wait, and keeps no recording from its end.
            let _ = socket.send(&ToAgent::Refused("another user's session".into()).encode(), &[]);
            return self.complain(format!("refused process {} of user {}", peer.pid, peer.uid));
        }
        if !self.guests.have_room_for(peer) {
            return self.complain(format!("process {} connects again and again without a message", peer.pid));
        }
        let key = self.new_key();
        if poller.add(socket.as_fd(), Interest::Socket(key).to_number()).is_ok() {
            self.guests.add(key, socket, peer);
        }
        if let Some(oldest) = self.guests.one_too_many() {
            self.hear_guest(oldest, poller);
            let silent = self.guests.take(oldest, poller);
            silent.into_iter().for_each(|guest| self.complain_of_silence(guest.peer));
        }
    }

    fn complain_of_silence(&mut self, peer: Peer) {
        self.complain(format!("process {} connected and sent no message", peer.pid));
    }

    /// Sends away who has been silent for too long.
    pub fn dismiss_silent(&mut self, poller: &Poller) {
        while let Some(key) = self.guests.late() {
            self.hear_guest(key, poller);
            let silent = self.guests.take(key, poller);
            silent.into_iter().for_each(|guest| self.complain_of_silence(guest.peer));
        }
    }

    /// Remembers a problem, once; of too many, that there were more.
    fn complain(&mut self, problem: String) {
        if self.problems.contains(&problem) {
            return;
        }
        let problem = match self.problems.len() {
            ..MOST_PROBLEMS => problem,
            _ => {
                let _ = self.orders.send(Order::ProblemUntold);
                "and more of that kind".to_owned()
            }
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Counts a process that is not recorded, and remembers why.
    fn leave_out(&mut self, problem: String) {
        self.complain(problem);
        let _ = self.orders.send(Order::LeftOut(1));
    }

    /// Counts a process that is not recorded, once: a child knocks as what it was forked from, and
    /// once more as the program that it executes.
    fn leave_out_process(&mut self, pid: u32) {
        if self.is_member(pid) {
            return;
        }
        if self.left_out.len() >= MANY_LEFT_OUT {
            self.left_out.retain(|_, when| when.elapsed() < SAME_PROCESS);
        }
        let before = self.left_out.insert(pid, Instant::now());
        if before.is_none_or(|when| when.elapsed() >= SAME_PROCESS) {
            let _ = self.orders.send(Order::LeftOut(1));
        }
    }

    /// Takes note of who has introduced himself.
    pub fn hear_guests(&mut self, poller: &Poller) {
        for key in self.guests.keys() {
            self.hear_guest(key, poller);
        }
    }

    fn hear_guest(&mut self, key: u64, poller: &Poller) {
        let Some(guest) = self.guests.take(key, poller) else { return };
        let mut buffer = [0; MAX_MESSAGE];
        let packet = match guest.socket.hear(&mut buffer) {
            Heard::Packet(len) => buffer.get(..len).unwrap_or(&[]),
            // It wanted to know who listens here.
            Heard::End => return,
            Heard::Nothing => {
                if poller.add(guest.socket.as_fd(), Interest::Socket(key).to_number()).is_ok() {
                    self.guests.put_back(key, guest);
                }
                return;
            }
        };
        if let Err(problem) = self.welcome(guest.socket, guest.peer, packet, poller) {
            self.complain(problem);
        }
    }

    fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Makes a member of who may be one. `packet` is the first thing that it said.
    fn welcome(
        &mut self,
        socket: PacketSocket,
        peer: Peer,
        packet: &[u8],
        poller: &Poller,
    ) -> Result<(), String> {
        if !self.terms.admission.lets_in(peer.pid) {
            let _ = socket.send(&ToAgent::Refused("a session for other processes".into()).encode(), &[]);
            if target::is_gone(peer.pid) {
                self.leave_out_process(peer.pid);
                return Err(format!("process {} had ended before it could join", peer.pid));
            }
            return Ok(());
        }
        if self.is_member(peer.pid) {
            // It found the session under two names.
            let _ = socket.send(&ToAgent::Refused("has joined already".into()).encode(), &[]);
            return Ok(());
        }
        let hello = read_hello(packet).and_then(|hello| match self.participations.get(&peer.pid) {
            Some(Participations { count: MOST_TIMES, .. }) => {
                Err(format!("it has joined {MOST_TIMES} times"))
            }
            _ => Ok(hello),
        });
        let hello = hello.map_err(|reason| {
            let _ = socket.send(&ToAgent::Refused(reason.clone()).encode(), &[]);
            format!("refused process {}: {reason}", peer.pid)
        })?;
        self.introductions.add(peer.pid, &hello.executable);
        let hello = Hello { rseq: hello.rseq && self.terms.rseq, ..hello };
        if !socket.is_open() {
            // It has ended, or executes another program by now: nothing is to be made for it.
            self.leave_out_process(peer.pid);
            return Err(format!("{} ({}) had ended before it could join", hello.name, peer.pid));
        }
        let key = self.new_key();
        let watched = socket.peer_watch().and_then(|watch| match watch.has_ended() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "it had ended before it could join")),
            false => Ok(watch),
        });
        let shared = watched.and_then(|watch| Ok((watch, self.share_memory(&socket, &hello, peer, key)?)));
        let (watch, recording) = shared.map_err(|error| {
            let reason = reason(&error);
            let _ = socket.send(&ToAgent::Refused(reason.clone()).encode(), &[]);
            self.leave_out_process(peer.pid);
            if self.participations.get(&peer.pid).is_some_and(|it| it.count == 0) {
                self.participations.remove(&peer.pid);
            }
            format!("{} ({}) is not recorded: {reason}", hello.name, peer.pid)
        })?;
        let socket = Arc::new(socket);
        self.welcomed += 1;
        if self.left_out.remove(&peer.pid).is_some_and(|when| when.elapsed() < SAME_PROCESS) {
            let _ = self.orders.send(Order::LeftOut(-1));
        }
        self.participations.entry(peer.pid).or_default().count += 1;
        self.retire_former(peer.pid, poller);
        if let Admission::Family(heads) = &mut self.terms.admission {
            // Its children are family even if it ends before them.
            if !heads.contains(&peer.pid) {
                heads.push(peer.pid);
            }
        }
        let add = |descriptor, interest: Interest| poller.add(descriptor, interest.to_number());
        add(socket.as_fd(), Interest::Socket(key)).map_err(|error| error.to_string())?;
        add(watch.as_fd(), Interest::Watch(key)).map_err(|error| error.to_string())?;
        let member =
            Member { pid: peer.pid, name: hello.name.clone(), socket: Some(Arc::clone(&socket)), watch };
        self.members.insert(key, member);
        let process = Process::new(key, peer.pid, hello, Some(socket), recording);
        // If the consumer is gone, the recording is over anyway.
        let _ = self.orders.send(Order::Joined(Box::new(process)));
        Ok(())
    }

    /// Ends the oldest recording that a process has left behind, if there are many.
    fn retire_former(&mut self, pid: u32, poller: &Poller) {
        let former = self.members.iter().filter(|(_, member)| member.pid == pid && member.socket.is_none());
        let former: Vec<u64> = former.map(|(key, _)| *key).collect();
        if let (MOST_FORMER.., Some(oldest)) = (former.len(), former.into_iter().min()) {
            self.part_with(oldest, poller, "became another program".into());
        }
    }

    /// Whether a process is a living member or descends from one: it has changed its user, and is recorded on.
    fn is_of_the_family(&self, pid: u32) -> bool {
        Admission::Family(self.members.values().map(|member| member.pid).collect()).lets_in(pid)
    }

    /// Whether a process is one of the session's users', or descends from one that is recorded.
    ///
    /// A descendant is known by its number, which another process may have got since: the one that
    /// connected has to be alive, so the number is still its own.
    fn believes(&self, socket: &PacketSocket, peer: Peer) -> bool {
        let is_user = self.terms.users.contains(&peer.uid) && tompion_os::is_one_user(peer.uid);
        let is_alive = || socket.peer_watch().is_ok_and(|process| !process.has_ended());
        is_user || self.is_of_the_family(peer.pid) && is_alive()
    }

    /// Whether a process with this id talks to the session already. (One that has executed another program
    /// has closed its conversation.)
    fn is_member(&self, pid: u32) -> bool {
        let mut same = self.members.values().filter(|member| member.pid == pid);
        same.any(|member| member.socket.as_ref().is_some_and(|socket| socket.is_open()))
    }

    /// Makes the two memory files of a process and passes them on.
    fn share_memory(
        &mut self,
        socket: &PacketSocket,
        hello: &Hello,
        peer: Peer,
        key: u64,
    ) -> io::Result<process::Recording> {
        let pid = peer.pid;
        let geometry = self.terms.geometry;
        let given_time = !(self.terms.tsc && hello.tsc);
        let form = form_for(hello);
        let folder = self.new_folder(&hello.name, pid);
        let uuid = uuid::Uuid::new_v4();
        let kept_in = match &self.terms.backing {
            None => None,
            Some(backing) => {
                let mut saved = SavedProcess::new(hello, pid, folder.path(), &uuid.to_string());
                (saved.key, saved.given_time) = (key, given_time);
                Some((ProcessBacking::create(backing, &saved, geometry)?, saved))
            }
        };
        let mut attention = Attention::new(&self.terms, peer, hello.pid, given_time);
        let (control, rings) = match &kept_in {
            None => {
                let new = |name: &CStr, size| -> io::Result<_> {
                    let file = create_memfd(name, size)?;
                    let map = SharedMap::new(file.as_fd(), size)?;
                    Ok((file, map))
                };
                let (control_file, control) = new(c"tompion-control", control::FILE_SIZE)?;
                let (ring_file, rings) = new(c"tompion-rings", geometry.file_size())?;
                self.fill_in(&control, form, given_time);
                self.hand_over(socket, [control_file.as_fd(), ring_file.as_fd()])?;
                (control, rings)
            }
            Some((kept_in, saved)) => {
                let (control, rings) = kept_in.map(geometry)?;
                self.fill_in(&control, form, given_time);
                // Whoever recovers its events should know whose they are.
                let _ = attention.keep(kept_in);
                kept_in.describe(saved)?;
                self.hand_over(socket, kept_in.files().map(AsFd::as_fd)).inspect_err(|_| {
                    // It has ended meanwhile, and has recorded nothing.
                    let _ = kept_in.remove();
                })?;
                (control, rings)
            }
        };
        Ok(process::Recording {
            geometry,
            form,
            overwrite: self.terms.overwrite,
            given_time,
            control,
            rings,
            folder,
            description: describe(&self.terms, hello, pid, Uuid(uuid.into_bytes())),
            attention,
            kept_in: kept_in.map(|(files, _)| files),
            budget: self.budget_of(peer),
        })
    }

    /// Room for the descriptions of a process that takes part.
    fn budget_of(&mut self, peer: Peer) -> Budget {
        let process = self.participations.entry(peer.pid).or_default().budget.clone();
        let user = match self.terms.users[..] {
            // There is nobody to be protected against its user.
            [_] => Shared::default(),
            _ => self.user_budgets.entry(peer.uid).or_default().clone(),
        };
        Budget::new(process, user, self.budget.clone())
    }

    /// Passes the memory on, with what selects the buffer.
    fn hand_over(&self, socket: &PacketSocket, files: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let selector = self.terms.selector.as_ref().map(|array| array.as_fd());
        let files: Vec<_> = files.into_iter().chain(selector).collect();
        socket.send(&ToAgent::Welcome.encode(), &files)
    }

    fn fill_in(&self, map: &SharedMap, form: WriteProtocol, given_time: bool) {
        let geometry = self.terms.geometry;
        let flags = if self.terms.overwrite { control::FLAG_OVERWRITE } else { 0 }
            | if given_time { control::FLAG_MONOTONIC } else { 0 }
            | if form == WriteProtocol::ReserveCommit { control::FLAG_RESERVE } else { 0 }
            | if self.terms.backing.is_some() { control::FLAG_PERSISTENT } else { 0 }
            | if self.terms.application_contexts { control::FLAG_CONTEXTS } else { 0 };
        // Ordering: the file is passed on afterwards, by a system call.
        let half = |offset, value| map.half(offset).store(value, Ordering::Relaxed);
        let word = |offset, value| map.word(offset).store(value, Ordering::Relaxed);
        word(control::OFFSET_MAGIC, control::MAGIC);
        half(control::OFFSET_VERSION, LAYOUT_VERSION);
        half(control::OFFSET_FLAGS, flags);
        word(control::OFFSET_SUBBUF_SIZE, geometry.subbuf_size());
        word(control::OFFSET_SUBBUF_COUNT, geometry.subbuf_count());
        half(control::OFFSET_CPUS, geometry.cpus());
        half(control::OFFSET_BUFFERS, geometry.buffers());
        let rules = self.terms.rules.to_text();
        let rules = &rules.as_bytes()[..rules.len().min(control::RULES_SIZE as usize)];
        map.copy_in(control::RULES as usize, rules);
        half(control::OFFSET_RULES_LEN, rules.len() as u32);
    }

    /// A folder that no other process of this recording has.
    fn new_folder(&mut self, name: &str, pid: u32) -> DirHandle {
        let sound = |character: char| character.is_ascii_alphanumeric() || "._+-".contains(character);
        let name: String = name.chars().map(|c| if sound(c) { c } else { '_' }).collect();
        let name = format!("{}-{pid}", if name.is_empty() { "process" } else { &name });
        let mut unique = name.clone();
        let mut number = 1;
        // Another process may have this name with a number behind it as its own.
        while !self.folders.insert(self.hasher.hash_one(&unique)) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        self.terms.folder.join("user").join(unique)
    }

    /// A guest or a member said something, or a conversation ended.
    pub fn hear(&mut self, key: u64, poller: &Poller) {
        if self.guests.has(key) {
            return self.hear_guest(key, poller);
        }
        let mut buffer = [0; MAX_MESSAGE];
        if let Some(socket) = self.heirs.get(&key) {
            match socket.receive_bare(&mut buffer) {
                Some(len) => {
                    if let Some(reason) = child_failed(buffer.get(..len)) {
                        self.leave_out(format!("a child is not recorded: {reason}"));
                    }
                }
                None => {
                    poller.remove(socket.as_fd());
                    self.heirs.remove(&key);
                }
            }
            return;
        }
        let Some(member) = self.members.get_mut(&key) else { return };
        let Some(socket) = &member.socket else { return };
        match socket.receive_bare(&mut buffer).and_then(|len| ToSession::decode(buffer.get(..len)?).ok()) {
            Some(ToSession::Failed(reason)) => {
                let reason = tidy(&reason, MOST_REASON);
                let problem = format!("{} ({}) is not recorded: {reason}", member.name, member.pid);
                self.leave_out(problem);
            }
            Some(ToSession::ChildFailed(reason)) => {
                let reason = tidy(&reason, MOST_REASON);
                let problem =
                    format!("a child of {} ({}) is not recorded: {reason}", member.name, member.pid);
                self.leave_out(problem);
            }
            Some(ToSession::Hello(_)) => {}
            None => {
                poller.remove(socket.as_fd());
                member.socket = None;
                let _ = self.orders.send(Order::Disconnected(key));
            }
        }
    }

    /// Ends all conversations: agents stop recording as they notice.
    pub fn close(mut self) -> Self {
        self.members.clear();
        self.heirs.clear();
        self
    }

    /// A member has ended; its parent may know how.
    pub fn bury(&mut self, key: u64, poller: &Poller, how: impl FnOnce(u32) -> Option<String>) {
        let Some(pid) = self.members.get(&key).map(|member| member.pid) else { return };
        self.participations.remove(&pid);
        self.part_with(key, poller, how(pid).unwrap_or_else(|| "ended".into()));
    }

    fn part_with(&mut self, key: u64, poller: &Poller, how: String) {
        let Some(member) = self.members.remove(&key) else { return };
        poller.remove(member.watch.as_fd());
        if let Some(socket) = member.socket {
            // Its end will be heard, now or when the last heir has closed it.
            self.heirs.insert(key, socket);
            if self.heirs.len() > MAX_HEIRS {
                self.heirs.pop_first().into_iter().for_each(|(_, oldest)| poller.remove(oldest.as_fd()));
            }
        }
        let _ = self.orders.send(Order::Ended(key, how));
    }
}

/// What the trace of a process says of itself.
pub fn describe(terms: &Terms, hello: &Hello, pid: u32, uuid: Uuid) -> encode::Source {
    let Terms { hostname, boot_id, clock_offset_ns, tid, contexts, .. } = terms;
    let text = |name: &str, value: &str| (name.to_owned(), EnvironmentValue::from(value));
    let number = |name: &str, value: i64| (name.to_owned(), EnvironmentValue::from(value));
    // Readers know a user-space trace, and what its events may mean, by the names that LTTng uses.
    let environment = vec![
        text("hostname", hostname),
        text("domain", "ust"),
        text("tracer_name", "lttng-ust"),
        number("tracer_major", 2),
        number("tracer_minor", 13),
        text("producer", concat!("tompion ", env!("CARGO_PKG_VERSION"))),
        text("ring_producer", manifest::producer(form_for(hello))),
        number("vpid", pid.into()),
        text("procname", &hello.name),
        text("executable", &hello.executable),
    ];
    encode::Source {
        uuid,
        environment,
        clock_uuid: Uuid::parse(boot_id),
        clock_offset_ns: *clock_offset_ns,
        clock_precision_ns: 20,
        tid: *tid,
        context: contexts.iter().flat_map(|context| context.fields()).collect(),
    }
}

/// Why a child could not reach the session, if that is what its parent's conversation says.
fn child_failed(packet: Option<&[u8]>) -> Option<String> {
    match ToSession::decode(packet?) {
        Ok(ToSession::ChildFailed(reason)) => Some(tidy(&reason, MOST_REASON)),
        _ => None,
    }
}

/// The first message of a process.
fn read_hello(packet: &[u8]) -> Result<Hello, String> {
    match ToSession::decode(packet) {
        Ok(ToSession::Hello(hello)) => Ok(Hello {
            name: tidy(&hello.name, MOST_NAME),
            executable: tidy(&hello.executable, MOST_PATH),
            agent_version: tidy(&hello.agent_version, MOST_NAME),
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

/// The form of a process's rings: without restartable sequences it has to reserve its records.
pub const fn form_for(hello: &Hello) -> WriteProtocol {
    if hello.rseq { WriteProtocol::Rseq } else { WriteProtocol::ReserveCommit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_survive_the_poller() {
        for interest in [Interest::Listener, Interest::Signals, Interest::Socket(7), Interest::Watch(7)] {
            assert_eq!(Interest::from_number(interest.to_number()), interest);
        }
    }
}
