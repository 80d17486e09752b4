//! Choice of the kernel's events by words.

use tompion_kernel::{
    AvailableEvents, Selection, UnknownEvent, Words,
    context::{Context, Contexts},
    filter::{Filter, FilterProblem},
    probes::{Probe, ProbeSpec, ProbeSpecError},
    stacks,
    syscalls::Calls,
};

/// Choice of the kernel's events.
#[derive(Clone, Debug)]
pub struct KernelChoice {
    /// Events to record.
    pub selection: Selection,
    /// The system calls of this machine.
    pub calls: Calls,
    /// Filter, compiled for this selection from the filter of the recording's rules.
    pub filter: Option<Filter>,
    /// Context of events.
    pub contexts: Contexts,
    /// Words by which the user has chosen.
    pub words: Vec<String>,
    /// Whether system calls of some processes alone are recorded.
    pub follows: bool,
    /// Whether a recorder before this one has loaded the programs. It alone could load others.
    pub is_taken_over: bool,
}

/// Reason why events can't be chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// A probe can't be.
    #[error(transparent)]
    Probe(#[from] ProbeSpecError),
    /// No event matches a pattern.
    #[error(transparent)]
    Unknown(#[from] UnknownEvent),
    /// The filter can't be applied.
    #[error(transparent)]
    Filter(#[from] FilterProblem),
}

impl KernelChoice {
    /// Chooses events by words. `filter` is the filter of the recording's rules.
    ///
    /// # Errors
    /// If there are no such events, or the filter can't be applied to them.
    pub fn new(
        words: &[String],
        contexts: Contexts,
        filter: Option<&str>,
        follows: bool,
    ) -> Result<Self, ChoiceError> {
        let parsed = Words::parse(words);
        let probes = find_probes(&parsed)?;
        let available = AvailableEvents::of_this_kernel();
        let mut selection = Selection { probes, ..parsed.select(&available, follows)? };
        if contexts.has(Context::UserStack) {
            stacks::add_lives(&mut selection);
        }
        let calls = available.calls;
        let filter = filter.map(|text| Filter::new(text, &mut selection, &calls)).transpose()?;
        Ok(Self { selection, calls, filter, contexts, words: words.to_vec(), follows, is_taken_over: false })
    }
}

fn find_probes(words: &Words) -> Result<Vec<Probe>, ProbeSpecError> {
    let parsed = words.probes.iter().map(|probe| ProbeSpec::parse(probe));
    let mut found = Vec::new();
    for probe in parsed.collect::<Result<Vec<_>, _>>()? {
        found.extend(probe.find()?);
    }
    Ok(found)
}
