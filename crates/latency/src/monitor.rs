//! Begins, resumes and ends counting; reads what was counted.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use tompion_kernel::Obstacle;
use tompion_os::{DirHandle, FileRights};

use crate::{
    Error,
    balance::Balance,
    groups::{self, Found, Group},
    jobs::Jobs,
    kinds::Kinds,
    log::Log,
    memory::{Memory, VERSION},
    pins::Pins,
    programs,
    prometheus::{self, OfProcess, Told},
    recent::{Recent, of_intervals},
    report::Report,
    snapshot::Snapshot,
    stack_symbols::StackSymbols,
    witness::{Unseen, Witness},
};

/// Whether counting has begun now, or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// By this call.
    Now,
    /// Somebody had begun; all that was counted since is there.
    Before,
}

/// What became of a monitor that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It counts.
    GoesOn,
    /// Somebody has stopped it, and nothing counts under its name.
    Stopped,
    /// Somebody has stopped it, and another one counts under its name.
    Replaced,
}

/// Programs that count, in the kernel; any number of processes may look at the same.
pub struct Monitor {
    pins: Pins,
    memory: Memory,
    witness: Witness,
    names: StackSymbols,
    jobs: Option<Jobs>,
    recent: Recent,
    /// Of the folder with the pins, by which it is known: another one may take its place.
    inode: u64,
}

/// 0 if there is no folder.
fn inode(pins: &Pins) -> u64 {
    let _rights = FileRights::of_the_process().ok();
    fs::metadata(pins.folder()).map_or(0, |found| found.ino())
}

/// Everything that is known to stand in the way of counting.
pub fn obstacles() -> Vec<Obstacle> {
    // Formats are for recording alone.
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
    /// Counts from now on, or goes on with what counts already. `kinds` is for the former.
    ///
    /// # Errors
    /// If something is missing ([`obstacles`]), the kernel refuses the programs, or another version counts.
    pub fn begin(name: &str, kinds: Kinds) -> Result<(Self, Begun), Error> {
        Self::begin_with_log(name, kinds, 0)
    }

    /// The same, and keeps so many wake-ups one by one ([`Monitor::log`]), at 32 bytes each. This is for who compares them with
    /// other measurements: where nothing is kept, nothing of it is left in the programs.
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
            crate::pins::remove(&fresh);
            return Err(error);
        }
        // The kernel's types took far more than counting does.
        tompion_os::release_unused_memory();
        let begun = if pins.publish(&fresh)? { Begun::Now } else { Begun::Before };
        if begun == Begun::Now {
            // From a monitor before this one, that was ended by other means.
            let _ = fs::remove_file(pins.since());
        }
        Ok((Self::open(pins)?, begun))
    }

    /// Looks at what counts already.
    ///
    /// # Errors
    /// [`Error::NotCounting`] if nothing does; else as [`Monitor::begin`].
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
            witness: Witness::default(),
            names: StackSymbols::default(),
            jobs: None,
            recent: Recent::default(),
            inode,
        })
    }

    /// Ends counting and forgets what was counted. False if nothing counted.
    ///
    /// # Errors
    /// If that isn't permitted.
    pub fn stop(name: &str) -> Result<bool, Error> {
        let _rights = FileRights::of_the_process().ok();
        Pins::of(name)?.withdraw()
    }

    /// Whether it counts still. What it counted until it was stopped can be read all the same.
    pub fn fate(&self) -> Fate {
        match inode(&self.pins) {
            0 => Fate::Stopped,
            found if found == self.inode => Fate::GoesOn,
            _ => Fate::Replaced,
        }
    }

    /// Whether its programs are those of this build of Tompion. Those of another one with the same layout count on and can be read;
    /// what was mended since, they don't have.
    pub fn is_of_this_build(&self) -> bool {
        self.memory.build() == programs::build()
    }

    /// What is counted.
    pub fn kinds(&self) -> Kinds {
        self.memory.kinds()
    }

    /// Changes what is counted, from now on.
    pub fn set_kinds(&self, kinds: Kinds) {
        self.memory.set_kinds(kinds);
    }

    /// Groups of threads that are counted by themselves, too.
    pub fn groups(&self) -> Vec<Group> {
        self.memory.groups().counted().into_iter().map(|(_, group)| group).collect()
    }

    /// Has these groups counted by themselves from now on, and no others. Those that were before keep what they have.
    ///
    /// # Errors
    /// If there are too many, another process changes them at the moment, or cgroups are asked for where there are none.
    pub fn set_groups(&self, groups: &[Group]) -> Result<Found, Error> {
        let _rights = FileRights::of_the_process().ok();
        let folder = self.pins.folder();
        // Root alone may look into it, so nobody else can lock it.
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

    /// All that was counted so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.memory)
    }

    /// Reports have these jobs from now on.
    pub fn report_jobs(&mut self, jobs: Jobs) {
        self.jobs = Some(jobs);
    }

    /// The jobs that reports have, if any.
    pub fn jobs(&self) -> Option<&Jobs> {
        self.jobs.as_ref()
    }

    /// Compares with the scheduler's own count from now on ([`Unseen`]), not from the beginning.
    pub fn look_from_now(&mut self) {
        self.witness.begin_anew(&self.memory);
    }

    /// Compares with the scheduler's own count: of threads that are gone, nobody can do that any more.
    pub fn look(&mut self) {
        self.witness.look(&self.memory);
    }

    /// The wake-ups that were kept one by one; none unless it was begun with that.
    ///
    /// # Errors
    /// If the array can't be mapped.
    pub fn log(&self) -> Result<Log, Error> {
        let _rights = FileRights::of_the_process().ok();
        programs::map_log(self.pins.folder())
    }

    /// What came since an earlier snapshot of this monitor; without one, since the last reset.
    pub fn report(&mut self, since: Option<&Snapshot>) -> Report {
        let unseen = self.witness.look(&self.memory);
        let now = self.snapshot();
        let reset = self.last_reset(&now);
        let mut report = self.complete(Report::between(since.unwrap_or(&reset), &now, self.kinds()), unseen);
        self.names.tell(&mut report);
        self.forget_threads();
        report
    }

    /// Looks after the rows of threads, and compares with the scheduler's own count.
    pub fn tidy(&mut self) -> Unseen {
        let unseen = self.witness.look(&self.memory);
        self.forget_threads();
        unseen
    }

    fn forget_threads(&self) {
        self.memory.forget_threads(|tid| !PathBuf::from(format!("/proc/{tid}")).exists());
    }

    /// The programs' arrays.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Wake-ups so far, by how they ended.
    pub fn balance(&self) -> Balance {
        Balance::read(&self.memory)
    }

    /// A page in the text format of Prometheus, of one moment: counters since counting began, which never go back, the longest since
    /// the last reset and of the last minutes, and what the process does beside that.
    pub fn exposition(&mut self, process: &OfProcess) -> String {
        let unseen = self.witness.look(&self.memory);
        let now = self.snapshot();
        let total = self.complete(Report::between(&now.of_the_beginning(), &now, self.kinds()), unseen);
        let since_reset = self.complete(Report::between(&self.last_reset(&now), &now, self.kinds()), unseen);
        let recent = self.recent.longest(&now, of_intervals(&self.memory));
        self.forget_threads();
        prometheus::exposition(&Told { total: &total, since_reset: &since_reset, recent: &recent, process })
    }

    /// Adds what is in no snapshot.
    fn complete(&self, report: Report, unseen: Unseen) -> Report {
        let _rights = FileRights::of_the_process().ok();
        Report {
            unseen: (unseen.slept > 0).then_some(unseen),
            not_started: programs::not_started(self.pins.folder()),
            jobs: self.jobs.as_ref().map(Jobs::report),
            ..report
        }
    }

    /// The state from which reports begin: the last reset's, or the beginning's.
    fn last_reset(&self, now: &Snapshot) -> Snapshot {
        let _rights = FileRights::of_the_process().ok();
        let text = fs::read(self.pins.since()).unwrap_or_default();
        match serde_json::from_slice::<Snapshot>(&text) {
            // Not of an earlier monitor, nor of one before the machine started.
            Ok(snapshot) if snapshot.begun == now.begun => snapshot,
            _ => now.of_the_beginning(),
        }
    }

    /// Reports begin anew. The kernel's counters go on, so that nothing is lost: all that is not in the reports up to here is in
    /// those from here on.
    ///
    /// # Errors
    /// If the state can't be written below `/run`.
    pub fn reset(&self) -> Result<(), Error> {
        let _rights = FileRights::of_the_process().ok();
        let path = self.pins.since();
        let failed = |error| Error::file("can't write", &path, error);
        // Maxima first: one that comes between belongs to the next report, though it is counted in those before. The other way
        // round it would be in none.
        let time = tompion_os::monotonic_ns();
        self.memory.next_epoch();
        let snapshot = Snapshot { time, ..self.snapshot() };
        let bytes = serde_json::to_vec(&snapshot).map_err(|error| failed(error.into()))?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let folder = DirHandle::open_or_create(folder).map_err(failed)?;
        folder.replace(name, &bytes, false).map_err(failed)
    }
}
