//! Initial state in the kernel's trace, and descriptions of stacks: a stream of its own, which no
//! ring's history overwrites.

use std::sync::mpsc::TryRecvError;

use tompion_ctf::encode::Record;
use tompion_kernel::{decode::Class, state::State};
use tompion_kernel_context::context;
use tompion_writer::{InitialMark, Mark, Pushed};

use crate::drain::Drain;

impl Drain {
    /// Takes what was read of the state at the start. It is in a stream of its own, which no ring's
    /// history overwrites.
    pub fn take_state(&mut self, to_its_end: bool) {
        let Some(source) = self.state.take() else { return };
        let stream = self.writer.initial_stream();
        loop {
            let next = if to_its_end { source.recv().map_err(TryRecvError::from) } else { source.try_recv() };
            match next {
                Ok(states) => states.iter().for_each(|state| self.write_state(stream, state)),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => return self.state = Some(source),
            }
        }
        self.is_state_complete = true;
        self.attempt(|drain| {
            let mark = drain.initial_mark();
            drain.writer.flush(stream, mark)?;
            // Another recorder would read it again.
            let is_noted = !drain.is_kept() || drain.writer.mark(stream) == mark;
            if is_noted { Ok(()) } else { drain.writer.say_passed(stream, mark) }
        });
        self.state_bytes = self.writer.initial_bytes();
    }

    fn write_state(&mut self, stream: usize, state: &State) {
        let class = Class::State(state.place);
        let id = self.classes.id(class, &mut self.writer, &self.vocabulary);
        let mut context = Vec::new();
        let of_state =
            context::EventContext { tid: state.tid, pid: state.pid, values: &self.own, stacks: [0; 2] };
        context::encode(self.contexts, &of_state, &mut context);
        let State { time, payload, .. } = state;
        let encoded = Record { id, time: *time, tid: 0, context: &context, payload };
        self.attempt(|drain| match drain.writer.push(stream, 0, 0, &encoded)? {
            Pushed::Full => drain.writer.flush(stream, drain.initial_mark()),
            Pushed::Taken | Pushed::Misfit => Ok(()),
        });
    }

    /// Mark of a packet of the initial stream: the last stack that it describes, and whether it has
    /// all of the state.
    pub fn initial_mark(&self) -> Mark {
        let (catalog, pinned) = (self.stacks.last().into(), self.is_state_complete.into());
        InitialMark { catalog, pinned, ..InitialMark::default() }.into()
    }

    /// Writes what stacks' numbers mean, behind the state at the start, where nothing overwrites
    /// it. Of a recording that outlasts its recorder, at once: no packet may have a number that the
    /// next recorder does not find described.
    pub fn write_definitions(&mut self) {
        if self.state.is_some() && !self.is_kept() {
            return;
        }
        let definitions = self.stacks.definitions();
        if definitions.is_empty() {
            return;
        }
        let stream = self.writer.initial_stream();
        let mut context = Vec::new();
        let (tid, pid) = (tompion_os::gettid(), std::process::id());
        let own = context::EventContext { tid, pid, values: &self.own, stacks: [0; 2] };
        context::encode(self.contexts, &own, &mut context);
        for definition in &definitions {
            let id = self.classes.id(definition.class, &mut self.writer, &self.vocabulary);
            let payload = &definition.payload;
            let encoded = Record { id, time: definition.time, tid: 0, context: &context, payload };
            self.attempt(|drain| match drain.writer.push(stream, 0, 0, &encoded)? {
                Pushed::Full => drain.writer.flush(stream, drain.initial_mark()),
                Pushed::Taken | Pushed::Misfit => Ok(()),
            });
        }
        self.attempt(|drain| drain.writer.flush(stream, drain.initial_mark()));
    }
}
