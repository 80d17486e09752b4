//! Jobs that are told instead of written: from the records of all rings to messages in order.

use tompion_jobs::{JobRecord, Moment};
use tompion_layout::loss::Cause;
use tompion_os::ClockPair;

use super::{LATEST, Process, convert::RawRecord};
use tompion_clock::ClockMap;

impl Process {
    /// Takes a job's begin or end, whose turn comes later.
    pub(super) fn take_job(&mut self, stream: usize, record: &RawRecord<'_>, clock: &mut ClockMap) {
        let RawRecord { number, tid, time, payload } = *record;
        if !self.classes.contains_key(&number) {
            self.read_catalog();
        }
        let ns = if self.given_time { time.min(LATEST) } else { clock.to_plausible_ns(time) };
        let moment = Moment { raw: time, ns };
        let class = self.classes.get(&number);
        let describe = || class.map(|class| &class.event);
        let jobs = self.context_sources.jobs.as_mut();
        if !jobs.is_some_and(|jobs| jobs.take(&JobRecord { number, moment, tid, payload }, describe)) {
            self.refuse(stream);
        }
    }

    /// Notes that the rings were copied after this moment: nothing that was recorded before it
    /// comes any more, unless a record was not complete.
    pub fn note_copied_jobs(&mut self, before: ClockPair) {
        let is_whole = self.states.iter().all(|state| state.is_whole);
        if let Some(jobs) = self.context_sources.jobs.as_mut().filter(|_| is_whole) {
            let before = jobs.moment(before);
            jobs.order.note_copied(before, self.states.iter().map(|state| state.read));
        }
    }

    /// Notes what was converted, and tells losses. `before` and `after` are moments around the
    /// round. Where nothing waits, `everything` has losses looked at all the same.
    pub fn note_converted_jobs(&mut self, around: (ClockPair, ClockPair), everything: bool) {
        let Some(jobs) = &mut self.context_sources.jobs else { return };
        let waiting = |state: &super::RingState| state.pending.front().map(|(span, _)| span.begin);
        jobs.order.note_converted(self.states.iter().map(|state| waiting(state).unwrap_or(state.read)));
        if everything || jobs.is_waiting() {
            self.tell_lost_jobs(around);
        }
    }

    /// Tells begins and ends whose turn has come.
    pub fn tell_due_jobs(&mut self, now: ClockPair) {
        if let Some(jobs) = &mut self.context_sources.jobs {
            jobs.tell_due(now);
        }
    }

    /// Tells how many begins and ends were lost.
    fn tell_lost_jobs(&mut self, around: (ClockPair, ClockPair)) {
        let losses = self.losses(|cause| cause != Cause::NotWritten);
        if let Some(jobs) = &mut self.context_sources.jobs {
            jobs.tell_lost(losses.total, losses.unknown, around);
        }
    }

    /// Sends the messages that wait, and says that the process has left.
    pub fn tell_end_of_jobs(&mut self) {
        let now = tompion_os::sample_clocks();
        self.tell_lost_jobs((now, now));
        if let Some(jobs) = &mut self.context_sources.jobs {
            jobs.tell_end();
        }
    }
}
