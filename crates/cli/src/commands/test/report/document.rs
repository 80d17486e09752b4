//! What a report is made of: everything that was found, as its JSON has it.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tompion_machine::{
    Root,
    description::{self, Fact},
    fitness,
};
use tompion_rttest::campaign::{Results, Who};

/// The version of the JSON.
const FORMAT: u32 = 1;

/// A report.
#[derive(Serialize, Deserialize)]
pub struct Document {
    pub test: String,
    pub format: u32,
    /// What it is called, in titles and comparisons.
    pub name: String,
    /// The version of the command that has made it.
    pub tompion: String,
    /// When, in UTC.
    pub made: String,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The latest that a wake-up may be, in nanoseconds.
    pub limit_ns: u64,
    pub machine: Vec<Fact>,
    pub settings: Vec<Setting>,
    #[serde(flatten)]
    pub results: Results,
}

/// What `doctor --rt` says of a setting.
#[derive(Clone, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub state: State,
    pub found: String,
    pub why: String,
    pub mend: Option<String>,
}

/// How good a setting is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Good,
    Drawback,
    Bad,
    Unknown,
}

impl From<fitness::Finding> for Setting {
    fn from(finding: fitness::Finding) -> Self {
        let state = match finding.state {
            fitness::State::Good => State::Good,
            fitness::State::Drawback => State::Drawback,
            fitness::State::Bad => State::Bad,
            fitness::State::Unknown => State::Unknown,
        };
        let fitness::Finding { name, found, why, mend, .. } = finding;
        Self { name: name.into(), state, found, why: why.into(), mend }
    }
}

impl Document {
    /// One of what was found here and now.
    pub fn new(name: String, limit_ns: u64, took_s: f64, results: Results) -> Self {
        let root = Root::default();
        Self {
            test: "report".into(),
            format: FORMAT,
            name,
            tompion: env!("CARGO_PKG_VERSION").into(),
            made: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            took_s,
            limit_ns,
            machine: description::describe(&root),
            settings: fitness::examine(&root).into_iter().map(Setting::from).collect(),
            results,
        }
    }

    /// The one in a file.
    ///
    /// # Errors
    /// The file can't be read, or is no report's JSON.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let _rights = crate::commands::invoking_users_rights()?;
        let bytes = std::fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
        let expected = "expected the JSON that `tompion test report` writes beside its page";
        let document: Self = serde_json::from_slice(&bytes)
            .map_err(|error| anyhow::anyhow!("{expected}, found in {}: {error}", path.display()))?;
        anyhow::ensure!(
            document.test == "report" && document.format == FORMAT,
            "{expected} in format {FORMAT}, found `{}` in format {} in {}",
            document.test,
            document.format,
            path.display()
        );
        Ok(document)
    }

    /// Whether a hypervisor plays the hardware.
    pub fn is_virtual(&self) -> bool {
        self.machine.iter().any(|fact| fact.name == "hypervisor" && fact.value.starts_with("yes"))
    }

    /// The latest wake-up while somebody records.
    pub fn latest_ns(&self, recorder: Who) -> Option<f64> {
        let wakeups = self.results.cyclic.iter().find(|wakeups| wakeups.recorder == recorder)?;
        wakeups.outcome.cpus.iter().map(|measured| measured.late.max_ns).reduce(f64::max)
    }
}
