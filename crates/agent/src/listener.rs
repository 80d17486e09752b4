//! The background thread of a recording: waits for what the session has to say.
//!
//! It sleeps in the kernel nearly always. It also notices when the session is gone, and then ends the
//! recording, so that the program runs on as if it had never been recorded.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tompion_os::PacketSocket;
use tompion_protocol::message::{MAX_MESSAGE, ToAgent};

use crate::registry;

/// Slots that wait for their thread, one bit each.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Starts the thread of a recording. The caller holds the registry's lock.
pub fn start(slot: usize) {
    // Ordering: pairs with the acquire in `run`.
    WAITING.fetch_or(1 << slot, Ordering::Release);
    // Without the thread, events are recorded all the same; only later changes are not heard of.
    let _ = tompion_os::spawn_background(run);
}

/// The thread: takes one waiting slot and listens for it.
fn run() {
    // Ordering: pairs with the release in `start`.
    let waiting = WAITING.load(Ordering::Acquire);
    for slot in (0..u32::BITS).filter(|slot| waiting & (1 << slot) != 0) {
        if WAITING.fetch_and(!(1 << slot), Ordering::AcqRel) & (1 << slot) != 0 {
            return listen(slot as usize);
        }
    }
}

fn listen(slot: usize) {
    let Some((socket, identity)) = registry::lock().recordings[slot].as_ref().map(|joined| joined.socket())
    else {
        return;
    };
    let mut buffer = [0; MAX_MESSAGE / 4];
    loop {
        if socket.identity() != identity {
            return let_go(socket, identity);
        }
        match receive(&socket, &mut buffer) {
            Some(ToAgent::RulesChanged) => {
                let mut registry = registry::lock();
                if let Some(joined) = &mut registry.recordings[slot] {
                    joined.refresh_rules();
                }
                registry.enable_all();
            }
            Some(ToAgent::Populate { offset, len }) => {
                if let Some(joined) = &registry::lock().recordings[slot] {
                    joined.populate(offset, len);
                }
            }
            Some(ToAgent::Welcome | ToAgent::Refused(_)) => {}
            None => {
                end(slot);
                return let_go(socket, identity);
            }
        }
    }
}

/// Closes our descriptor, unless the program has done so: then the number may be its own by now.
fn let_go(socket: Arc<PacketSocket>, identity: Option<(u64, u64)>) {
    if socket.identity() != identity {
        std::mem::forget(socket);
    }
}

/// The next message; none when the conversation is over.
fn receive(socket: &PacketSocket, buffer: &mut [u8]) -> Option<ToAgent> {
    let received = socket.receive_bare(buffer)?;
    // Decoding uses the agent's heap, which nobody may hold across a fork.
    let _guard = registry::lock();
    ToAgent::decode(buffer.get(..received)?).ok()
}

/// The session is gone.
fn end(slot: usize) {
    let mut registry = registry::lock();
    registry.disable(slot);
    if let Some(joined) = registry.recordings[slot].take() {
        let retired = joined.leave(slot);
        registry.retired.extend(retired);
    }
}
