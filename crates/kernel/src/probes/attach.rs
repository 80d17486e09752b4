//! Attachment of probes: tells the programs the probes' places, and puts the probes there.

use std::{
    ffi::{CString, OsString},
    fs,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
};

use aya::{
    Ebpf,
    maps::Array,
    programs::{KProbe, ProgramError, UProbe},
};
use tompion_os::{ProbePlace, attach_probe};

use super::{MAX_ARGUMENTS, Probe, Site, Target};

/// The programs' maps, with how many entries they need for these probes and so many CPUs.
pub(crate) fn maps(probes: &[Probe], cpus: u32) -> [(&'static str, u32); 2] {
    let sites = probes.iter().map(|probe| probe.sites.len() as u32).sum::<u32>();
    [("probe_sites", sites.max(1)), ("probe_scratches", cpus * SCRATCHES)]
}
/// `PROBE_SCRATCHES` of `src/bpf/probes.h`.
const SCRATCHES: u32 = 4;
/// Words of `struct probe_site`.
const SITE_WORDS: usize = 2 + 2 * MAX_ARGUMENTS;

/// Probes that are in their places, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Attached(Vec<OwnedFd>);

impl Attached {
    /// Their links.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        tompion_os::close_in_parallel(std::mem::take(&mut self.0));
    }
}

/// Whether the kernel can be probed.
pub(super) fn has_kprobes() -> bool {
    kind_of("kprobe").is_ok()
}

/// The kernel's number for a kind of event.
fn kind_of(name: &str) -> Result<u32, String> {
    let path = format!("/sys/bus/event_source/devices/{name}/type");
    let text =
        fs::read_to_string(&path).map_err(|error| format!("this kernel has no {name}s ({path}: {error})"))?;
    text.trim().parse().map_err(|_| format!("{path} is no number: {}", text.trim()))
}

/// Puts all probes into their places.
///
/// # Errors
/// A line that says which one could not be put there, and why.
pub(crate) fn attach(ebpf: &mut Ebpf, probes: &[Probe]) -> Result<Attached, String> {
    let mut links = Vec::new();
    for (event, probe) in probes.iter().enumerate() {
        let program = match &probe.target {
            Target::File(_) => "probe_in_program",
            Target::Kernel(_) => "probe_in_kernel",
        };
        for site in &probe.sites {
            let number = links.len() as u32;
            tell(ebpf, number, words(probe, event as u32, site)).map_err(|error| probe.problem(&error))?;
            let program = loaded(ebpf, program).map_err(|error| probe.problem(&error))?;
            links.push(probe.put_at(site, program, number.into())?);
        }
    }
    Ok(Attached(links))
}

impl Probe {
    /// Puts a program of somebody's own into all places of this probe, with a cookie that it gets
    /// to know, until what is returned is closed.
    ///
    /// # Errors
    /// A line that says why it can't be put there.
    pub fn put(&self, program: BorrowedFd<'_>, cookie: u64) -> Result<Vec<OwnedFd>, String> {
        self.sites.iter().map(|site| self.put_at(site, program, cookie)).collect()
    }

    fn put_at(&self, site: &Site, program: BorrowedFd<'_>, cookie: u64) -> Result<OwnedFd, String> {
        let (kind, target) = match &self.target {
            Target::File(file) => ("uprobe", file.clone().into_os_string()),
            Target::Kernel(function) => ("kprobe", OsString::from(function)),
        };
        let target = CString::new(target.into_vec()).map_err(|error| self.problem(&error))?;
        let kind = kind_of(kind).map_err(|error| self.problem(&error))?;
        let config = u64::from(self.at_return) | site.semaphore << 32;
        let place = ProbePlace { kind, config, target: &target, offset: site.offset };
        attach_probe(program, place, cookie).map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &dyn std::fmt::Display) -> String {
        format!("the probe {} can't be put in place: {error}", self.event.full_name())
    }
}

/// A program, which is loaded when it is asked for first.
fn loaded<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<BorrowedFd<'a>, ProgramError> {
    let program = ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    if program.fd().is_err() {
        match <&mut UProbe>::try_from(&mut *program) {
            Ok(program) => program.load()?,
            Err(_) => <&mut KProbe>::try_from(&mut *program)?.load()?,
        }
    }
    Ok(program.fd()?.as_fd())
}

fn tell(ebpf: &mut Ebpf, number: u32, words: [u64; SITE_WORDS]) -> Result<(), String> {
    let map = ebpf.map_mut("probe_sites").ok_or("there is no table of probes")?;
    let mut sites = Array::<_, [u64; SITE_WORDS]>::try_from(map).map_err(|error| error.to_string())?;
    sites.set(number, words, 0).map_err(|error| error.to_string())
}

/// A place as the programs read it: `struct probe_site` of `src/bpf/probes.h`.
fn words(probe: &Probe, event: u32, site: &Site) -> [u64; SITE_WORDS] {
    let mut words = [0; SITE_WORDS];
    let in_kernel = u64::from(matches!(probe.target, Target::Kernel(_)));
    words[0] = u64::from(event) | (site.values.len() as u64) << 32;
    // Work of the kernel itself may belong to no followed process.
    words[1] = in_kernel | in_kernel << 32;
    let places = words[2..].chunks_exact_mut(2);
    for ((words, value), ty) in places.zip(&site.values).zip(&probe.arguments) {
        words.copy_from_slice(&value.words(*ty));
    }
    words
}
