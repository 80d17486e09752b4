//! One connection: requests are read, answered and written, each within its time.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::net::RecvFlags;
use rustls::{ServerConfig, ServerConnection};

use crate::{
    Limits, Request, Response,
    message::{self, Refusal},
    slots::{Slot, State},
};

/// Status by which programs refuse a peer. The connection ends then.
const FORBIDDEN: u16 = 403;

/// Answers the requests of a connection until it ends.
pub(crate) fn serve(
    slot: &Slot,
    limits: &Limits,
    tls: Option<Arc<ServerConfig>>,
    answer: &dyn Fn(&Request) -> Response,
) {
    let _ = slot.stream.set_nodelay(true);
    let tls = match tls.map(ServerConnection::new).transpose() {
        Ok(tls) => tls,
        Err(error) => return log::debug!("no TLS: {error}"),
    };
    let mut channel = Channel { timed: Timed { slot, until: Instant::now() }, tls };
    serve_requests(&mut channel, limits, answer);
    channel.close();
}

fn serve_requests(channel: &mut Channel<'_>, limits: &Limits, answer: &dyn Fn(&Request) -> Response) {
    let slot = channel.timed.slot;
    let mut pending = Vec::new();
    channel.set_time(limits.request_timeout);
    loop {
        let mut memory = slot.bodies();
        let request = message::read(channel, &mut pending, limits.max_body, &mut memory);
        // The slot may be another connection's by now.
        if !slot.set_state(State::Answering) {
            return;
        }
        let mut request = match request {
            Ok(request) => request,
            Err(Refusal::Over) => return,
            Err(Refusal::Answer(response)) => {
                let _ = write(channel, limits, response, Manner { keep_alive: false, with_body: true });
                return;
            }
        };
        request.peer = slot.peer;
        let begun = Instant::now();
        let response = answer(&request);
        // Without the query, which may have a token.
        let (method, path, status) = (&request.method, &request.path, response.status);
        log::debug!("{method} {path:?}: {status} in {:?}", begun.elapsed());
        let idle = limits.idle_timeout.filter(|_| request.is_kept_alive() && response.status != FORBIDDEN);
        let manner = Manner { keep_alive: idle.is_some(), with_body: request.method != "HEAD" };
        drop((request, memory));
        let is_written = write(channel, limits, response, manner).is_ok();
        let Some(idle) = idle.filter(|_| is_written && slot.set_state(State::Waiting)) else { return };
        if pending.is_empty() {
            channel.set_time(idle);
            if message::read_more(channel, &mut pending).is_err() {
                return;
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
}

impl Channel<'_> {
    /// Sets the time by which all reads and writes end.
    fn set_time(&mut self, timeout: Duration) {
        self.timed.until = Instant::now() + timeout;
    }

    /// Says that nothing more comes, so that the peer knows that nothing was cut off.
    fn close(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.timed);
        }
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
