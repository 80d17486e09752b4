//! Initial state in the kernel's trace, and descriptions of stacks: a stream of its own, which no
//! ring's history overwrites.

use std::sync::mpsc::TryRecvError;

use tompion_ctf::encode::Record;
use tompion_kernel::{decode::Class, state::State};
use tompion_kernel_context::context;
use tompion_writer::{Mark, Pushed};

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
        self.attempt(|drain| drain.writer.flush(stream, Mark::default()));
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
            Pushed::Full => drain.writer.flush(stream, Mark::default()),
            Pushed::Taken | Pushed::Misfit => Ok(()),
        });
    }

    /// Writes what stacks' numbers mean, behind the state at the start, where nothing overwrites
    /// it.
    pub fn write_definitions(&mut self) {
        if self.state.is_some() {
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
                Pushed::Full => drain.writer.flush(stream, Mark::default()),
                Pushed::Taken | Pushed::Misfit => Ok(()),
            });
        }
        self.attempt(|drain| drain.writer.flush(stream, Mark::default()));
    }
}
