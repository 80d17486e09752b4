//! Options of a recording in chunks, and of triggers.

use clap::Args;
use tompion_chunks::{Policy, Retention, Rotation};
use tompion_triggers::{Abilities, Trigger};

/// Options of a recording in chunks.
#[derive(Args)]
pub struct ChunkOptions {
    /// Record into chunks, folders in DIR that are traces in themselves. Begin a new one after a
    /// time or a size, such as 10min, size=1G or 10min,size=1G; with manual, only on `tompion
    /// rotate`
    #[arg(long, value_name = "WHEN", conflicts_with = "gather_as")]
    rotate: Option<Rotation>,
    /// Keep at most so many chunks, such as age=2d,size=50G,count=100, and remove the oldest
    #[arg(long, value_name = "LIMITS", requires = "rotate")]
    keep: Option<Retention>,
    /// Do something when something happens, as 'WHEN -> DO, DO… [capture FIELDS] [after TIME]
    /// [limit N/UNIT]' (repeatable). WHEN is an event with an optional filter, such as
    /// 'event:app:request ? ns > 10ms', a span, 'span:app:request > 10ms', late:JOB (it missed its
    /// deadline), 'silence:app:beat for 5s' (it has not come for so long in a program in which it
    /// came), external:WORD (said by `tompion trigger`), killed (the command, by a signal),
    /// killed:NAME (a recorded program), loss, fill:90% (a ring waits to be written), or
    /// rate:100k/s (events). DO is snapshot (of a
    /// flight recorder; it goes on for TIME), rotate, notify, stop, or `run PROGRAM ARGUMENTS`.
    /// FIELDS are those of the event that a firing tells [default: all]
    #[arg(long = "trigger", value_name = "RULE", conflicts_with = "gather_as")]
    pub triggers: Vec<Trigger>,
}

impl ChunkOptions {
    /// Returns the reason why a trigger can't do what it should.
    pub fn obstacle(&self, is_flight_recorder: bool) -> Option<String> {
        let abilities =
            Abilities { is_flight_recorder, is_in_chunks: self.rotate.is_some(), ..Abilities::default() };
        tompion_triggers::obstacle(&self.triggers, abilities).map(|(_, problem)| problem)
    }

    /// Returns the rules of a recording in chunks; none if it is to be one trace.
    pub fn policy(&self) -> Option<Policy> {
        let retention = self.keep.unwrap_or_default();
        self.rotate.map(|rotation| Policy { rotation, retention })
    }
}
