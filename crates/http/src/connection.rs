//! One connection: requests are read, answered and written, each within its time.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::net::RecvFlags;
use rustls::{ServerConfig, ServerConnection};

use crate::{
    Limits, Program, Response,
    message::{self, Check, Input, Reading, Refusal},
    slots::{Slot, State},
};

/// Time in which the rest of a refused request is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that a request gets for its body, in seconds.
const MAX_BODY_SECONDS: u64 = 24 * 3600;

/// Status by which programs refuse a peer. The connection ends then.
const FORBIDDEN: u16 = 403;

/// Answers the requests of a connection until it ends.
pub(crate) fn serve(slot: &Slot, limits: &Limits, tls: Option<Arc<ServerConfig>>, program: &Program) {
    let _ = slot.stream.set_nodelay(true);
    let tls = match tls.map(ServerConnection::new).transpose() {
        Ok(tls) => tls,
        Err(error) => return log::debug!("no TLS: {error}"),
    };
    let rate = limits.min_body_bytes_per_second;
    let mut channel = Channel { timed: Timed { slot, until: Instant::now() }, tls, rate };
    match serve_requests(&mut channel, limits, program) {
        End::Over => channel.close(),
        End::Refused => {
            channel.close();
            channel.discard(limits.max_body);
        }
    }
}

/// End of a connection's requests.
enum End {
    Over,
    /// A request was refused, and its body may still come.
    Refused,
}

fn serve_requests(channel: &mut Channel<'_>, limits: &Limits, program: &Program) -> End {
    let slot = channel.timed.slot;
    let gate = program.gate.as_deref().map(|gate| gate as Check<'_>);
    let reading = Reading { max_body: limits.max_body, peer: slot.peer, gate };
    let mut pending = Vec::new();
    channel.set_time(limits.request_timeout);
    loop {
        let mut memory = slot.bodies();
        let request = message::read(channel, &mut pending, &reading, &mut memory);
        // The slot may be another connection's by now.
        if !slot.set_state(State::Answering) {
            return End::Over;
        }
        let request = match request {
            Ok(request) => request,
            Err(Refusal::Over) => return End::Over,
            Err(Refusal::Answer(response)) => {
                let _ = write(channel, limits, response, Manner { keep_alive: false, with_body: true });
                return End::Refused;
            }
        };
        let begun = Instant::now();
        let response = (program.answer)(&request);
        // Without the query, which may have a token.
        let (method, path, status) = (&request.method, &request.path, response.status);
        log::debug!("{method} {path:?}: {status} in {:?}", begun.elapsed());
        let idle = limits.idle_timeout.filter(|_| request.is_kept_alive() && response.status != FORBIDDEN);
        let manner = Manner { keep_alive: idle.is_some(), with_body: request.method != "HEAD" };
        drop((request, memory));
        let is_written = write(channel, limits, response, manner).is_ok();
        let Some(idle) = idle.filter(|_| is_written && slot.set_state(State::Waiting)) else {
            return End::Over;
        };
        if pending.is_empty() {
            channel.set_time(idle);
            if message::read_more(channel, &mut pending).is_err() {
                return End::Over;
            }
        }
        channel.set_time(limits.request_timeout);
    }
}

/// Manner of writing an answer.
struct Manner {
    keep_alive: bool,
    with_body: bool,
}

fn write(channel: &mut Channel<'_>, limits: &Limits, response: Response, manner: Manner) -> io::Result<()> {
    let more = limits.min_bytes_per_second.map_or(0, |rate| response.body.len() / rate.max(1));
    channel.set_time(limits.answer_timeout + Duration::from_secs(more.min(u64::from(u32::MAX))));
    response.write(channel, manner.keep_alive, manner.with_body)
}

/// Connection, in the clear or by TLS.
struct Channel<'a> {
    timed: Timed<'a>,
    tls: Option<ServerConnection>,
    /// Slowest rate of bodies.
    rate: Option<u64>,
}

impl Channel<'_> {
    /// Sets the time by which all reads and writes end.
    fn set_time(&mut self, timeout: Duration) {
        self.timed.until = Instant::now() + timeout;
    }

    /// Says that nothing more comes, so that the peer knows that nothing was cut off.
    fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.timed);
        }
    }

    /// Reads what a peer still sends of a request that was refused: a connection that is closed
    /// with bytes unread loses its answer.
    fn discard(&mut self, max: usize) {
        let slot = self.timed.slot;
        let _ = slot.stream.shutdown(std::net::Shutdown::Write);
        self.set_time(DISCARD_TIMEOUT);
        let (mut bytes, mut left) = ([0; 8192], max);
        while left > 0 && slot.set_state(State::Waiting) {
            match self.timed.read(&mut bytes) {
                Ok(count) if count > 0 => left = left.saturating_sub(count),
                _ => return,
            }
        }
    }
}

impl Input for Channel<'_> {
    fn expect(&mut self, body: usize) {
        let seconds = self.rate.map_or(0, |rate| body as u64 / rate.max(1));
        self.timed.until += Duration::from_secs(seconds.min(MAX_BODY_SECONDS));
    }
}

impl Read for Channel<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.timed.read(bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.timed).read(bytes),
        }
    }
}

impl Write for Channel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.timed.write(bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.timed).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => rustls::Stream::new(tls, &mut self.timed).flush(),
        }
    }
}

/// Stream whose reads and writes all end by one time, however little each of them moves.
struct Timed<'a> {
    slot: &'a Slot,
    until: Instant,
}

impl Timed<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }

    /// Reads what is there; an error of the kind `WouldBlock` if that is nothing.
    fn read_at_once(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&*self.slot.stream, bytes, RecvFlags::DONTWAIT)?.0)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.rest()?;
        match self.read_at_once(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            result => return result,
        }
        // From here on, its slot may go to another connection.
        if !self.slot.set_state(State::Waiting) {
            return Ok(0);
        }
        loop {
            self.slot.stream.set_read_timeout(self.rest()?)?;
            match (&*self.slot.stream).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.slot.stream.set_write_timeout(self.rest()?)?;
        (&*self.slot.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
