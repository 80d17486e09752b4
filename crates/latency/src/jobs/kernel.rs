//! The programs that say when threads with jobs were woken, and when probes were passed. Offsets are those of `src/bpf/jobs.h`.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Map, MapData, RingBuf},
    programs::{ProgramError, UProbe, tp_btf::BtfTracePointLink},
};
use tompion_kernel::{Error as KernelError, chain, misses_of, probes::ProbeSpec, refused};
use tompion_os::{FileRights, SharedMap};

use super::joiner::Wake;
use crate::{
    Error,
    bpffs::{self, Pins},
    programs::{attach, missing, share_processors},
    raw_record,
};

/// The compiled programs; empty where there was no compiler.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/jobs.o"));

/// Programs and their tracepoints.
const PROGRAMS: [(&str, &str); 2] = [("runs", "sched_switch"), ("wakes", "sched_waking")];

const SLEEPERS: usize = 16_384;
const SLEEPER: usize = 40;
const IS_OPEN: usize = 4;
const MESSAGE: usize = 56;

/// What the programs tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A thread was woken.
    Woken(u32, Wake),
    /// A job begins: its number, process, thread, and the time.
    Begins(u32, u32, u32, u64),
    /// It ends: its number, process, thread, and the time.
    Ends(u32, u32, u32, u64),
}

/// The programs, as long as somebody watches.
pub struct Kernel {
    sleepers: SharedMap,
    tally: SharedMap,
    messages: RingBuf<MapData>,
    ebpf: Ebpf,
    _links: Vec<BtfTracePointLink>,
    probes: Vec<OwnedFd>,
}

impl Kernel {
    /// Watches from now on, behind the programs that count under this name.
    pub fn begin(name: &str) -> Result<Self, Error> {
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
        // The loader finds arrays of others by their plain names, in a folder of its own.
        let folder = pins.prepare()?;
        let ebpf = share_processors(pins.folder(), &folder).and_then(|()| {
            let loaded = EbpfLoader::new().btf(Some(&btf)).map_pin_path(&folder).load(OBJECT);
            Ok(loaded.map_err(|error| KernelError::Refused("the arrays of jobs".into(), chain(&error)))?)
        });
        bpffs::remove(&folder);
        let mut ebpf = ebpf?;
        let sleepers = map(&ebpf, "sleepers", SLEEPERS * SLEEPER)?;
        let tally = map(&ebpf, "tally", 8)?;
        let messages = ebpf.take_map("told").ok_or_else(|| missing("told"))?;
        let messages = RingBuf::try_from(messages)
            .map_err(|error| KernelError::Refused("the ring for jobs".into(), chain(&error)))?;
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS {
            let link = attach(&mut ebpf, name, tracepoint, &btf).map_err(|error| refused(name, &error))?;
            links.push(link);
        }
        Ok(Self { sleepers, tally, messages, ebpf, _links: links, probes: Vec::new() })
    }

    /// Puts probes at a job's begin and end, wherever these are.
    pub fn put_probes(&mut self, job: u32, begin: &ProbeSpec, end: &ProbeSpec) -> Result<(), Error> {
        // The end first: what began is seen to end.
        for (name, wish) in [("job_ends", end), ("job_begins", begin)] {
            let problem = |problem: String| Error::Obstacle { found: problem, mend: "name another place" };
            let found = wish.find().map_err(|error| problem(error.to_string()))?;
            let program: &mut UProbe = self
                .ebpf
                .program_mut(name)
                .ok_or_else(|| missing(name))?
                .try_into()
                .map_err(|error: ProgramError| refused(name, &error))?;
            if program.fd().is_err() {
                program.load().map_err(|error| refused(name, &error))?;
            }
            let program = program.fd().map_err(|error| refused(name, &error))?.as_fd();
            for probe in found {
                self.probes.extend(probe.put(program, job.into()).map_err(problem)?);
            }
        }
        Ok(())
    }

    /// Has the wake-ups of a thread told from now on.
    pub fn watch(&self, tid: u32) {
        let place = (tid as usize & (SLEEPERS - 1)) * SLEEPER;
        self.sleepers.half(place + IS_OPEN).store(0, Ordering::Relaxed);
        self.sleepers.half(place).store(tid, Ordering::Relaxed);
    }

    /// How many messages there was no room for.
    pub fn lost(&self) -> u64 {
        self.tally.word(0).load(Ordering::Relaxed)
    }

    /// How often the kernel did not start one of the programs.
    pub fn not_started(&self) -> u64 {
        let programs = PROGRAMS.iter().filter_map(|(name, _)| self.ebpf.program(name)?.fd().ok());
        programs.map(|program| misses_of(program.as_fd())).sum()
    }

    /// Takes all that was told until now.
    pub fn take(&mut self, mut tell: impl FnMut(Told)) {
        while let Some(bytes) = self.messages.next() {
            if let Some(told) = parse(&bytes) {
                tell(told);
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        tompion_os::close_in_parallel(std::mem::take(&mut self.probes));
    }
}

fn parse(bytes: &[u8]) -> Option<Told> {
    let bytes: &[u8; MESSAGE] = bytes.get(..MESSAGE)?.try_into().ok()?;
    let word = |at| raw_record::word(bytes, at);
    let half = |at| raw_record::half(bytes, at);
    let short = |at: usize| bytes[at..at + 2].try_into().map_or(0, u16::from_ne_bytes);
    let (time, tid, pid, job) = (word(0), half(40), half(44), short(54).into());
    match short(52) {
        1 | 4 => Some(Told::Woken(
            tid,
            Wake { running: time, woken: word(8), asked: word(16), intended: word(24), fired: word(32) },
        )),
        2 => Some(Told::Begins(job, pid, tid, time)),
        3 => Some(Told::Ends(job, pid, tid, time)),
        _ => None,
    }
}

fn map(ebpf: &Ebpf, name: &str, size: usize) -> Result<SharedMap, Error> {
    let Some(Map::Array(array)) = ebpf.map(name) else { return Err(missing(name)) };
    SharedMap::of_bpf_array(array.fd().as_fd(), size as u64).map_err(|error| KernelError::Rings(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_reader_agree() {
        let header = include_str!("../bpf/jobs.h");
        assert!(header.contains(&format!("#define SLEEPERS {SLEEPERS}\n")));
        let sizes = format!("sizeof(struct sleeper) == {SLEEPER} && sizeof(struct message) == {MESSAGE}");
        assert!(header.contains(&sizes), "{sizes}");
    }

    #[test]
    fn short_messages_are_none() {
        let mut bytes = [0; MESSAGE];
        bytes[0] = 9;
        bytes[40] = 7;
        bytes[52] = 3;
        bytes[54] = 2;
        assert_eq!(parse(&bytes), Some(Told::Ends(2, 0, 7, 9)));
        assert_eq!(parse(&bytes[..MESSAGE - 1]), None);
        bytes[52] = 0;
        assert_eq!(parse(&bytes), None);
    }
}
