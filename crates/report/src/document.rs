//! Content of a report: everything that was measured, as its JSON has it.

use serde::{Deserialize, Serialize};
use tompion_machine::{
    Root,
    description::{self, Fact},
    fitness,
};
use tompion_rttest::campaign::{Results, Who};

/// Version of the JSON.
const FORMAT: u32 = 1;

/// Reason why bytes are no report.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The bytes are no JSON, or lack what a report has.
    #[error("expected the JSON that `tompion test report` writes beside its page, found {0}")]
    Json(#[from] serde_json::Error),
    /// The JSON is of another test, or of another version.
    #[error(
        "expected the JSON that `tompion test report` writes beside its page in format {FORMAT}, found \
         `{test}` in format {format}"
    )]
    Format {
        /// Name of the test.
        test: String,
        /// Version of the JSON.
        format: u32,
    },
}

/// Report.
#[derive(Serialize, Deserialize)]
pub struct Document {
    /// Name of the test: `report`.
    pub test: String,
    /// Version of the JSON.
    pub format: u32,
    /// Name of the report, in titles and comparisons.
    pub name: String,
    /// Version of the command that made it.
    pub tompion: String,
    /// Time at which it was made, in UTC.
    pub made: String,
    /// Time that measuring took, in seconds.
    pub took_s: f64,
    /// Maximum wakeup latency that passes, in nanoseconds.
    pub limit_ns: u64,
    /// Properties of the machine.
    pub machine: Vec<Fact>,
    /// Settings of the machine, as `doctor --rt` judges them.
    pub settings: Vec<Setting>,
    /// Results of the tests.
    #[serde(flatten)]
    pub results: Results,
}

/// Setting of the machine.
#[derive(Clone, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the setting.
    pub name: String,
    /// Judgement.
    pub state: State,
    /// Value that was found.
    pub found: String,
    /// Reason why it matters.
    pub why: String,
    /// Commands that change it, one a line.
    pub mend: Option<String>,
}

/// Judgement of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The setting is as real-time programs need it.
    Good,
    /// Costs some latency.
    Drawback,
    /// No bound on latency can be expected.
    Bad,
    /// The setting could not be read.
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
    /// Makes a report of results that were measured on this machine just now.
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

    /// Parses the JSON of a report.
    ///
    /// # Errors
    /// The bytes are no report, or one of another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let document: Self = serde_json::from_slice(bytes)?;
        if document.test != "report" || document.format != FORMAT {
            return Err(ParseError::Format { test: document.test, format: document.format });
        }
        Ok(document)
    }

    /// Returns whether the machine is virtual.
    pub fn is_virtual(&self) -> bool {
        self.machine.iter().any(|fact| fact.name == "hypervisor" && fact.value.starts_with("yes"))
    }

    /// Returns the maximum wakeup latency with a recorder, in nanoseconds; none if it wasn't
    /// measured.
    pub fn max_wakeup_latency_ns(&self, recorder: Who) -> Option<f64> {
        let wakeups = self.results.cyclic.iter().find(|wakeups| wakeups.recorder == recorder)?;
        wakeups.outcome.cpus.iter().map(|measured| measured.late.max_ns).reduce(f64::max)
    }
}
