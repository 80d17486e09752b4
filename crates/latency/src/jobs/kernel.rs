//! Loader of the BPF programs that report wakeups of threads with jobs, and hits of their probes.
//! Offsets are those of `src/bpf/jobs.h`.

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

use super::joiner::{JobThread, Wake};
use crate::{
    Error,
    bpffs::{self, Pins},
    programs::{attach, missing, share_processors},
    raw_record,
};

/// Compiled programs; empty if there was no compiler.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/jobs.o"));

/// Programs and their tracepoints.
const PROGRAMS: [(&str, &str); 2] = [("runs", "sched_switch"), ("wakes", "sched_waking")];

const SLEEPERS: usize = 16_384;
const SLEEPER: usize = 40;
const IS_OPEN: usize = 4;
const MESSAGE: usize = 56;

/// Message of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMessage {
    /// Wakeup of a thread, by its number.
    Wakeup(u32, Wake),
    /// Begin of a job, and its time.
    Begin(JobThread, u64),
    /// End of a job, and its time.
    End(JobThread, u64),
}

/// Loaded programs; they are detached when this is dropped.
pub struct Kernel {
    sleepers: SharedMap,
    tally: SharedMap,
    messages: RingBuf<MapData>,
    ebpf: Ebpf,
    _links: Vec<BtfTracePointLink>,
    probes: Vec<OwnedFd>,
}

impl Kernel {
    /// Loads the programs and attaches them behind the monitor's of this name.
    pub fn begin(name: &str) -> Result<Self, Error> {
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Types(chain(&error)))?;
        // The loader finds other programs' arrays by their plain names, in a folder of its own.
        let folder = pins.prepare()?;
        let ebpf = share_processors(pins.folder(), &folder).and_then(|()| {
            let loaded = EbpfLoader::new().btf(Some(&btf)).map_pin_path(&folder).load(OBJECT);
            Ok(loaded.map_err(|error| KernelError::Refused("the arrays of jobs".into(), chain(&error)))?)
        });
        bpffs::remove(&folder);
        let mut ebpf = ebpf?;
        let sleepers = map(&ebpf, "sleepers", SLEEPERS * SLEEPER)?;
        let tally = map(&ebpf, "tally", 8)?;
        let messages = ebpf.take_map("messages").ok_or_else(|| missing("messages"))?;
        let messages = RingBuf::try_from(messages)
            .map_err(|error| KernelError::Refused("the ring for jobs".into(), chain(&error)))?;
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS {
            let link = attach(&mut ebpf, name, tracepoint, &btf).map_err(|error| refused(name, &error))?;
            links.push(link);
        }
        Ok(Self { sleepers, tally, messages, ebpf, _links: links, probes: Vec::new() })
    }

    /// Attaches probes at all places of a job's begin and end.
    pub fn put_probes(&mut self, job: u32, begin: &ProbeSpec, end: &ProbeSpec) -> Result<(), Error> {
        // The end first, so that each seen begin has its end.
        for (name, spec) in [("job_ends", end), ("job_begins", begin)] {
            let problem = |problem: String| Error::Obstacle { found: problem, mend: "name another place" };
            let found = spec.find().map_err(|error| problem(error.to_string()))?;
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

    /// Reports the wakeups of a thread from now on.
    pub fn watch(&self, tid: u32) {
        let offset = (tid as usize & (SLEEPERS - 1)) * SLEEPER;
        self.sleepers.half(offset + IS_OPEN).store(0, Ordering::Relaxed);
        self.sleepers.half(offset).store(tid, Ordering::Relaxed);
    }

    /// Number of messages that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.tally.word(0).load(Ordering::Relaxed)
    }

    /// Number of times that the kernel did not start one of the programs: BPF recursion misses.
    pub fn not_started(&self) -> u64 {
        let programs = PROGRAMS.iter().filter_map(|(name, _)| self.ebpf.program(name)?.fd().ok());
        programs.map(|program| misses_of(program.as_fd())).sum()
    }

    /// Removes all messages from the ring and passes them to `consume`.
    pub fn take(&mut self, mut consume: impl FnMut(KernelMessage)) {
        while let Some(bytes) = self.messages.next() {
            if let Some(message) = parse(&bytes) {
                consume(message);
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        tompion_os::close_in_parallel(std::mem::take(&mut self.probes));
    }
}

fn parse(bytes: &[u8]) -> Option<KernelMessage> {
    let bytes: &[u8; MESSAGE] = bytes.get(..MESSAGE)?.try_into().ok()?;
    let word = |at| raw_record::word(bytes, at);
    let half = |at| raw_record::half(bytes, at);
    let short = |at: usize| bytes[at..at + 2].try_into().map_or(0, u16::from_ne_bytes);
    let (time, tid) = (word(0), half(40));
    let of = JobThread { job: short(54).into(), pid: half(44), tid };
    match short(52) {
        1 | 4 => Some(KernelMessage::Wakeup(
            tid,
            Wake { running: time, woken: word(8), asked: word(16), intended: word(24), fired: word(32) },
        )),
        2 => Some(KernelMessage::Begin(of, time)),
        3 => Some(KernelMessage::End(of, time)),
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
    fn a_short_message_is_ignored() {
        let mut bytes = [0; MESSAGE];
        bytes[0] = 9;
        bytes[40] = 7;
        bytes[52] = 3;
        bytes[54] = 2;
        assert_eq!(parse(&bytes), Some(KernelMessage::End(JobThread { job: 2, pid: 0, tid: 7 }, 9)));
        assert_eq!(parse(&bytes[..MESSAGE - 1]), None);
        bytes[52] = 0;
        assert_eq!(parse(&bytes), None);
    }
}
