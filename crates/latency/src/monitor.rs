//! Lifecycle of a monitor: start, resume, read, reset and stop.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use tompion_kernel::Obstacle;
use tompion_os::{DirHandle, FileRights};

use crate::{
    Error,
    accounting::WakeupAccounting,
    bpffs::Pins,
    groups::{self, Found, Group},
    jobs::Jobs,
    kinds::Kinds,
    log::Log,
    mapped_counters::{MappedCounters, VERSION},
    programs,
    prometheus::{self, Exposition, OfProcess},
    recent::{Recent, of_intervals},
    report::Report,
    sched_crosscheck::{MissedWakeups, SchedCrosscheck},
    snapshot::Snapshot,
    stack_symbols::StackSymbols,
};

/// Whether this call started the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// This call started it.
    Now,
    /// The monitor ran before, and continues with its counts.
    Before,
}

/// Current state of a monitor opened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The monitor is counting.
    GoesOn,
    /// The monitor was stopped.
    Stopped,
    /// The monitor was stopped, and another one runs under its name.
    Replaced,
}

/// Running monitor in the kernel; any number of processes may open it.
pub struct Monitor {
    pins: Pins,
    memory: MappedCounters,
    crosscheck: SchedCrosscheck,
    names: StackSymbols,
    jobs: Option<Jobs>,
    recent: Recent,
    /// Inode of the folder of pinned files, which identifies the monitor: another one may replace
    /// it.
    inode: u64,
}

/// Returns 0 if the folder doesn't exist.
fn inode(pins: &Pins) -> u64 {
    let _rights = FileRights::of_the_process().ok();
    fs::metadata(pins.folder()).map_or(0, |found| found.ino())
}

/// Lists all known obstacles to counting.
pub fn obstacles() -> Vec<Obstacle> {
    // Event formats are for recording alone.
    let mut found: Vec<_> = tompion_kernel::obstacles().into_iter().filter(|it| !it.bearable).collect();
    if programs::OBJECT.is_empty() && found.is_empty() {
        found.push(Obstacle {
            found: "this build has no monitor: clang was missing".into(),
            mend: "apt install clang, and build again",
            bearable: false,
        });
    }
    found
}

impl Monitor {
    /// Starts counting, or continues with a running monitor; `kinds` applies to the former.
    ///
    /// # Errors
    /// If a requirement is missing ([`obstacles`]), the kernel rejects the programs, or another
    /// version runs.
    pub fn begin(name: &str, kinds: Kinds) -> Result<(Self, Begun), Error> {
        Self::begin_with_log(name, kinds, 0)
    }

    /// Starts counting and logs this many wakeups one by one ([`Monitor::log`]), at 32 bytes each.
    /// It is for comparisons with other measurements; without a log, the programs contain no code
    /// for it.
    ///
    /// # Errors
    /// As [`Monitor::begin`].
    pub fn begin_with_log(name: &str, kinds: Kinds, wakeups: u32) -> Result<(Self, Begun), Error> {
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        if let Some(Obstacle { found, mend, .. }) = obstacles().into_iter().next() {
            return Err(Error::Obstacle { found, mend });
        }
        if pins.folder().exists() {
            return Ok((Self::open(pins)?, Begun::Before));
        }
        let fresh = pins.prepare()?;
        if let Err(error) = programs::begin(&fresh, tompion_os::possible_cpus(), kinds, wakeups) {
            crate::bpffs::remove(&fresh);
            return Err(error);
        }
        // The kernel's types took far more memory than counting does.
        tompion_os::release_unused_memory();
        let begun = if pins.publish(&fresh)? { Begun::Now } else { Begun::Before };
        if begun == Begun::Now {
            // Left by an earlier monitor that was ended by other means.
            let _ = fs::remove_file(pins.since());
        }
        Ok((Self::open(pins)?, begun))
    }

    /// Opens a running monitor.
    ///
    /// # Errors
    /// [`Error::NotCounting`] if none is running; else as [`Monitor::begin`].
    pub fn resume(name: &str) -> Result<Self, Error> {
        let _rights = FileRights::of_the_process().ok();
        let pins = Pins::of(name)?;
        if let Some(Obstacle { found, mend, .. }) = obstacles().into_iter().next() {
            return Err(Error::Obstacle { found, mend });
        }
        if !pins.folder().exists() {
            return Err(Error::NotCounting);
        }
        Self::open(pins)
    }

    fn open(pins: Pins) -> Result<Self, Error> {
        let version = programs::version_in(pins.folder())?;
        if version != VERSION {
            let found = pins.folder().display().to_string();
            return Err(Error::OtherVersion { found, version, expected: VERSION });
        }
        let memory = programs::map_arrays(pins.folder(), tompion_os::possible_cpus())?;
        if !programs::is_whole(pins.folder()) {
            return Err(Error::NotWhole(pins.folder().display().to_string()));
        }
        let inode = inode(&pins);
        Ok(Self {
            pins,
            memory,
            crosscheck: SchedCrosscheck::default(),
            names: StackSymbols::default(),
            jobs: None,
            recent: Recent::default(),
            inode,
        })
    }

    /// Stops counting and discards the counts. Returns false if no monitor was running.
    ///
    /// # Errors
    /// If that isn't permitted.
    pub fn stop(name: &str) -> Result<bool, Error> {
        let _rights = FileRights::of_the_process().ok();
        Pins::of(name)?.withdraw()
    }

    /// Returns its state. Counts of a stopped monitor can still be read.
    pub fn fate(&self) -> Fate {
        match inode(&self.pins) {
            0 => Fate::Stopped,
            found if found == self.inode => Fate::GoesOn,
            _ => Fate::Replaced,
        }
    }

    /// Returns whether its programs are those of this build. Programs of another build with the
    /// same layout can be read, but lack later fixes.
    pub fn is_of_this_build(&self) -> bool {
        self.memory.build() == programs::build()
    }

    /// Counted kinds.
    pub fn kinds(&self) -> Kinds {
        self.memory.kinds()
    }

    /// Changes the counted kinds.
    pub fn set_kinds(&self, kinds: Kinds) {
        self.memory.set_kinds(kinds);
    }

    /// Groups of threads that are also counted separately.
    pub fn groups(&self) -> Vec<Group> {
        self.memory.groups().counted().into_iter().map(|(_, group)| group).collect()
    }

    /// Changes the separately counted groups. Groups that remain keep their counts.
    ///
    /// # Errors
    /// If there are too many, another process is changing them, or cgroups are requested on a
    /// machine without them.
    pub fn set_groups(&self, groups: &[Group]) -> Result<Found, Error> {
        let _rights = FileRights::of_the_process().ok();
        let folder = self.pins.folder();
        // Only root can open the folder, so no other user can lock it.
        let lock = tompion_os::try_lock_directory(folder)
            .map_err(|error| Error::file("can't lock", folder, error))?;
        let Some(_lock) = lock else {
            return Err(Error::Obstacle {
                found: "another process changes what is counted".into(),
                mend: "try again in a moment",
            });
        };
        groups::begin(groups, self.memory.groups(), groups::table(programs::open_cgroups(folder)?)?)
    }

    /// Takes a snapshot of all counters.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.memory)
    }

    /// Adds jobs to all later reports.
    pub fn report_jobs(&mut self, jobs: Jobs) {
        self.jobs = Some(jobs);
    }

    /// Jobs in reports, if any.
    pub fn jobs(&self) -> Option<&Jobs> {
        self.jobs.as_ref()
    }

    /// Restarts the crosscheck with the scheduler's count ([`MissedWakeups`]) from now on.
    pub fn look_from_now(&mut self) {
        self.crosscheck.restart(&self.memory);
    }

    /// Updates the crosscheck: for ended threads, the scheduler's count is gone.
    pub fn look(&mut self) {
        self.crosscheck.compare(&self.memory);
    }

    /// Returns the logged wakeups; none unless started with a log.
    ///
    /// # Errors
    /// If the array can't be mapped.
    pub fn log(&self) -> Result<Log, Error> {
        let _rights = FileRights::of_the_process().ok();
        programs::map_log(self.pins.folder())
    }

    /// Reports the counts since an earlier snapshot of this monitor; without one, since the last
    /// reset.
    pub fn report(&mut self, since: Option<&Snapshot>) -> Report {
        let unseen = self.crosscheck.compare(&self.memory);
        let now = self.snapshot();
        let reset = self.last_reset(&now);
        let mut report = self.complete(Report::between(since.unwrap_or(&reset), &now, self.kinds()), unseen);
        self.names.tell(&mut report);
        self.forget_threads();
        report
    }

    /// Releases slots of ended threads, and updates the crosscheck.
    pub fn tidy(&mut self) -> MissedWakeups {
        let unseen = self.crosscheck.compare(&self.memory);
        self.forget_threads();
        unseen
    }

    fn forget_threads(&self) {
        self.memory.forget_threads(|tid| !PathBuf::from(format!("/proc/{tid}")).exists());
    }

    /// Mapped counters of the programs.
    pub fn counters(&self) -> &MappedCounters {
        &self.memory
    }

    /// Wakeups so far, by outcome.
    pub fn balance(&self) -> WakeupAccounting {
        WakeupAccounting::read(&self.memory)
    }

    /// Makes a page in the text format of Prometheus: counters since the start, which never go
    /// back, maxima since the last reset and of the last minutes, and other activities of the
    /// process.
    pub fn exposition(&mut self, process: &OfProcess) -> String {
        let unseen = self.crosscheck.compare(&self.memory);
        let now = self.snapshot();
        let total = self.complete(Report::between(&now.of_the_beginning(), &now, self.kinds()), unseen);
        let since_reset = self.complete(Report::between(&self.last_reset(&now), &now, self.kinds()), unseen);
        let recent = self.recent.longest(&now, of_intervals(&self.memory));
        self.forget_threads();
        prometheus::exposition(&Exposition {
            total: &total,
            since_reset: &since_reset,
            recent: &recent,
            process,
        })
    }

    /// Adds data that snapshots don't have.
    fn complete(&self, report: Report, unseen: MissedWakeups) -> Report {
        let _rights = FileRights::of_the_process().ok();
        Report {
            unseen: (unseen.slept > 0).then_some(unseen),
            not_started: programs::not_started(self.pins.folder()),
            jobs: self.jobs.as_ref().map(Jobs::report),
            ..report
        }
    }

    /// State from which reports begin: that of the last reset, else of the start.
    fn last_reset(&self, now: &Snapshot) -> Snapshot {
        let _rights = FileRights::of_the_process().ok();
        let text = fs::read(self.pins.since()).unwrap_or_default();
        match serde_json::from_slice::<Snapshot>(&text) {
            // Not of an earlier monitor or an earlier boot.
            Ok(snapshot) if snapshot.begun == now.begun => snapshot,
            _ => now.of_the_beginning(),
        }
    }

    /// Restarts reports. The kernel's counters continue, so that nothing is lost: counts are in the
    /// reports before or after the reset.
    ///
    /// # Errors
    /// If the state can't be written below `/run`.
    pub fn reset(&self) -> Result<(), Error> {
        let _rights = FileRights::of_the_process().ok();
        let path = self.pins.since();
        let failed = |error| Error::file("can't write", &path, error);
        // Maxima first: a latency in between then belongs to the next report, though earlier ones
        // count it. In the other order it would be in none.
        let time = tompion_os::monotonic_ns();
        self.memory.next_epoch();
        let snapshot = Snapshot { time, ..self.snapshot() };
        let bytes = serde_json::to_vec(&snapshot).map_err(|error| failed(error.into()))?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let folder = DirHandle::open_or_create(folder).map_err(failed)?;
        folder.replace(name, &bytes, false).map_err(failed)
    }
}
