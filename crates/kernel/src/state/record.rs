//! Events of the initial state under construction.

use super::Kind;

/// Number of events that are handed over at once.
const PORTION: usize = 256;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its place in [`super::NAMES`].
    pub place: usize,
    /// Time at which it was read, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// The thread that read it.
    pub tid: u32,
    /// That thread's process.
    pub pid: u32,
    /// Its fields, as the description says they stand.
    pub payload: Vec<u8>,
}

/// Fields of an event: what has a fixed size, and behind it the texts.
#[derive(Default)]
pub(super) struct Payload {
    fixed: Vec<u8>,
    texts: Vec<u8>,
}

impl Payload {
    /// A number as its bytes.
    pub(super) fn number<const SIZE: usize>(&mut self, bytes: [u8; SIZE]) {
        self.fixed.extend(bytes);
    }

    /// 32 bits.
    pub(super) fn word(&mut self, number: u32) {
        self.number(number.to_le_bytes());
    }

    /// 16 bits.
    pub(super) fn half(&mut self, number: u16) {
        self.number(number.to_le_bytes());
    }

    /// A text, up to its first NUL.
    pub(super) fn text(&mut self, text: &[u8]) {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        self.word(text.len() as u32 + 1);
        self.texts.extend(text);
        self.texts.push(0);
    }

    /// The name of a thread in 16 bytes, which stand among the texts.
    pub(super) fn name(&mut self, name: &[u8]) {
        let mut bytes = [0; 16];
        let length = name.len().min(15);
        bytes[..length].copy_from_slice(&name[..length]);
        self.texts.extend(bytes);
    }
}

/// Destination of events.
pub(super) struct Recording<'a> {
    give: &'a mut dyn FnMut(Vec<State>),
    portion: Vec<State>,
    tid: u32,
    pid: u32,
}

impl<'a> Recording<'a> {
    pub(super) fn new(give: &'a mut dyn FnMut(Vec<State>)) -> Self {
        Self { give, portion: Vec::new(), tid: tompion_os::gettid(), pid: std::process::id() }
    }

    /// Adds an event of this moment.
    pub(super) fn add(&mut self, kind: Kind, fill: impl FnOnce(&mut Payload)) {
        let mut payload = Payload::default();
        fill(&mut payload);
        let Payload { mut fixed, texts } = payload;
        fixed.extend(texts);
        let time = tompion_os::monotonic_ns();
        self.portion.push(State { place: kind as usize, time, tid: self.tid, pid: self.pid, payload: fixed });
        if self.portion.len() >= PORTION {
            (self.give)(std::mem::take(&mut self.portion));
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        (self.give)(std::mem::take(&mut self.portion));
    }
}
