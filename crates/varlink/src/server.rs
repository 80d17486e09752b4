//! Server: connections, their threads, and the interface that every service has.

use std::{
    collections::BTreeMap,
    io,
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use tompion_os::{Peer, PeerGroups, peer_groups_of, peer_of};

use crate::{
    connection::{Connection, Incoming},
    message::{Call, CallError, MAX_CALL, Reply, SERVICE_DESCRIPTION, SERVICE_INTERFACE, encode},
};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 32;
/// Maximum number of waits for a connection's thread to give its slot up, and the duration of one.
const MAX_SLOT_WAITS: u32 = 100;
const SLOT_WAIT: Duration = Duration::from_millis(1);
/// Time for a whole call, from its first byte on.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a reply to be taken.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two looks whether a subscriber is still there.
const SUBSCRIPTION_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a connection could not be accepted: descriptors may be given back meanwhile.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Names of a service, for `org.varlink.service.GetInfo`.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Its product: `Tompion`.
    pub product: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its address.
    pub url: &'static str,
}

/// Program at the other end of a connection, as the kernel noted when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its process and user.
    pub peer: Peer,
    /// Its groups; none if the kernel does not tell.
    pub groups: Option<PeerGroups>,
}

/// Methods of one interface.
pub trait Service: Send + Sync + 'static {
    /// Name of the service.
    fn identity(&self) -> Identity;

    /// The interface: `io.tompion.Recording1`.
    fn interface(&self) -> &'static str;

    /// Its description, as `varlinkctl introspect` shows it.
    fn description(&self) -> &'static str;

    /// Checks whether a program may connect at all.
    ///
    /// # Errors
    /// What it is told instead, before its connection takes anything.
    fn admit(&self, caller: &Caller) -> Result<(), CallError>;

    /// Answers a call of the interface; `method` is its name within the interface. It may take its
    /// time: only this connection waits.
    ///
    /// # Errors
    /// What the reply says instead.
    fn call(&self, caller: &Caller, method: &str, call: &Call) -> Result<Value, CallError>;

    /// Answers a call for which the client takes more than one reply: the parameters of each come
    /// from the receiver, until its sender is gone. None if the method has a single reply.
    ///
    /// # Errors
    /// What the reply says instead.
    fn subscribe(&self, peer: Peer, method: &str, call: &Call) -> Option<Result<Receiver<Value>, CallError>> {
        let _ = (peer, method, call);
        None
    }
}

/// Listening socket and the connections that came of it.
pub struct Server {
    listener: UnixListener,
    service: Arc<dyn Service>,
    connections: Arc<Connections>,
    max_per_user: usize,
}

impl Server {
    /// A server on a socket that listens.
    pub fn new(listener: UnixListener, service: Arc<dyn Service>) -> Self {
        Self { listener, service, connections: Arc::default(), max_per_user: MAX_CONNECTIONS }
    }

    /// Gives each user so many connections at most, so that others get some, too.
    #[must_use]
    pub fn with_connections_per_user(self, max_per_user: usize) -> Self {
        Self { max_per_user, ..self }
    }

    /// Accepts connections and has their calls answered, for ever. What a connection's thread
    /// needs that can't be had costs that connection.
    pub fn run(&self) -> ! {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => drop(self.admit(stream)),
                Err(_) => thread::sleep(ACCEPT_RETRY_INTERVAL),
            }
        }
    }

    fn admit(&self, stream: UnixStream) -> io::Result<()> {
        let peer = peer_of(stream.as_fd())?;
        let caller = Caller { peer, groups: peer_groups_of(stream.as_fd()).ok() };
        if let Err(refusal) = self.service.admit(&caller) {
            let refusal = encode(&Reply::from(Err(refusal)));
            return Connection::new(stream).write(&refusal, Duration::from_millis(1));
        }
        let Some(slot) = self.connections.enter(&stream, peer.uid, self.max_per_user)? else {
            return Ok(());
        };
        let service = Arc::clone(&self.service);
        let run = move || {
            // What goes wrong ends the connection, which is all there is to be said.
            let _ = serve(Connection::new(stream), &caller, &*service, &slot);
        };
        thread::Builder::new().name("control".into()).spawn(run).map(drop)
    }
}

/// Answers the calls of one connection until it ends.
fn serve(mut connection: Connection, caller: &Caller, service: &dyn Service, slot: &Slot) -> io::Result<()> {
    loop {
        let message = match connection.read(MAX_CALL, CALL_TIMEOUT, None)? {
            Incoming::Message(message) => message,
            Incoming::End | Incoming::Late => return Ok(()),
            Incoming::TooLarge => {
                let problem = format!("expected at most {MAX_CALL} bytes");
                let reply = Reply::from(Err(CallError::invalid_parameter(&problem)));
                return connection.write(&encode(&reply), REPLY_TIMEOUT);
            }
        };
        let call: Call = match serde_json::from_slice(&message) {
            Ok(call) => call,
            Err(error) => {
                // What follows can't be trusted to begin where a message does.
                let reply = Reply::from(Err(CallError::invalid_parameter(&error.to_string())));
                return connection.write(&encode(&reply), REPLY_TIMEOUT);
            }
        };
        slot.set_busy(true);
        match subscribe(caller.peer, service, &call) {
            None => {}
            Some(Ok(replies)) => return send_all(connection, &replies),
            Some(Err(error)) => {
                connection.write(&encode(&Reply::from(Err(error))), REPLY_TIMEOUT)?;
                continue;
            }
        }
        let reply = Reply::from(answer(caller, service, &call));
        if !call.oneway {
            connection.write(&encode(&reply), REPLY_TIMEOUT)?;
        }
        slot.set_busy(connection.has_more());
    }
}

/// Asks the service for a subscription, if that is what the client wants and the method offers.
fn subscribe(peer: Peer, service: &dyn Service, call: &Call) -> Option<Result<Receiver<Value>, CallError>> {
    let (interface, method) = call.method.rsplit_once('.').filter(|_| call.more)?;
    if interface == service.interface() { service.subscribe(peer, method, call) } else { None }
}

/// Sends replies as they come, until their sender or the client is gone.
fn send_all(mut connection: Connection, replies: &Receiver<Value>) -> io::Result<()> {
    loop {
        match replies.recv_timeout(SUBSCRIPTION_INTERVAL) {
            Ok(parameters) => {
                let reply = Reply { continues: true, ..Reply::from(Ok(parameters)) };
                connection.write(&encode(&reply), REPLY_TIMEOUT)?;
            }
            Err(RecvTimeoutError::Timeout) if connection.is_closed() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Parameter of `GetInterfaceDescription`.
#[derive(Deserialize)]
struct Described {
    interface: String,
}

fn answer(caller: &Caller, service: &dyn Service, call: &Call) -> Result<Value, CallError> {
    let (interface, method) =
        call.method.rsplit_once('.').ok_or_else(|| CallError::interface_not_found(&call.method))?;
    if interface == service.interface() {
        return service.call(caller, method, call);
    }
    if interface != SERVICE_INTERFACE {
        return Err(CallError::interface_not_found(interface));
    }
    match method {
        "GetInfo" => {
            let Identity { product, version, url } = service.identity();
            let interfaces = [SERVICE_INTERFACE, service.interface()];
            Ok(json!({
                "vendor": product, "product": product, "version": version, "url": url, "interfaces": interfaces,
            }))
        }
        "GetInterfaceDescription" => {
            let Described { interface } = call.parameters()?;
            let description = match interface.as_str() {
                SERVICE_INTERFACE => SERVICE_DESCRIPTION,
                name if name == service.interface() => service.description(),
                _ => return Err(CallError::interface_not_found(&interface)),
            };
            Ok(json!({ "description": description }))
        }
        _ => Err(CallError::method_not_found(&call.method)),
    }
}

/// All connections, by the order of their coming.
#[derive(Debug, Default)]
struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    stream: UnixStream,
    user: u32,
    is_busy: bool,
    /// Whether it was closed for another one.
    is_evicted: bool,
    /// Begin of the state, as a number that grows.
    since: u64,
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Closes the connection that has been idle for the longest time, of a user or of all. Its
    /// thread finds the end, and gives the slot up. Returns whether a slot will be free.
    fn evict(&mut self, user: Option<u32>) -> bool {
        let is_candidate = |entry: &&mut Entry| user.is_none_or(|user| entry.user == user);
        let mut candidates: Vec<_> = self.entries.values_mut().filter(is_candidate).collect();
        if candidates.iter().any(|entry| entry.is_evicted) {
            return true;
        }
        candidates.retain(|entry| !entry.is_busy);
        let Some(entry) = candidates.into_iter().min_by_key(|entry| entry.since) else { return false };
        entry.is_evicted = true;
        let _ = entry.stream.shutdown(Shutdown::Both);
        true
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection a slot, which an idle one may lose for it: one of the same user, if that
    /// has as many as it may have. None if all are busy: each slot has a thread.
    fn enter(
        self: &Arc<Self>,
        stream: &UnixStream,
        user: u32,
        max_per_user: usize,
    ) -> io::Result<Option<Slot>> {
        for _ in 0..MAX_SLOT_WAITS {
            let mut table = self.lock();
            let of_user = table.entries.values().filter(|entry| entry.user == user).count();
            if of_user < max_per_user && table.entries.len() < MAX_CONNECTIONS {
                let number = table.number();
                let (stream, is_busy, is_evicted) = (stream.try_clone()?, false, false);
                let entry = Entry { stream, user, is_busy, is_evicted, since: number };
                table.entries.insert(number, entry);
                return Ok(Some(Slot { connections: Arc::clone(self), number }));
            }
            // Others wait behind this one: it is not waited for what may take long.
            if !table.evict((of_user >= max_per_user).then_some(user)) {
                return Ok(None);
            }
            drop(table);
            thread::sleep(SLOT_WAIT);
        }
        Ok(None)
    }
}

/// Slot of one connection, given up when this is dropped.
#[derive(Debug)]
struct Slot {
    connections: Arc<Connections>,
    number: u64,
}

impl Slot {
    fn set_busy(&self, is_busy: bool) {
        let mut table = self.connections.lock();
        let since = table.number();
        if let Some(entry) = table.entries.get_mut(&self.number) {
            (entry.is_busy, entry.since) = (is_busy, since);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.lock().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
