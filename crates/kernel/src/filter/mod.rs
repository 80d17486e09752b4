//! Filters that run in the kernel, before an event takes any room.
//!
//! ```text
//! text ── parse ──► Expression ── bind to the places of a class's fields ([`layout`]) ──► Program
//!      ── tree ──► a block of instructions for the class ([`generate`])
//! blocks ── joined, behind a choice by the event's number ([`splice`]) ──► the body of `passes`
//! ```
//!
//! `src/bpf/filter.h` keeps the place of that body. The kernel's verifier sees it as if a compiler
//! had made it, and takes out of each program what belongs to others' events; so a condition costs
//! its own instructions and no more. What can't be told there (a text whose place the record says,
//! a pattern with a star inside) passes, and the reader decides.

mod code;
mod generate;
mod layout;
mod splice;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tompion_filter::{Expression, Scope};

use crate::{
    decode::{Call, Class, Vocabulary},
    events::{FIRST, KNOWN, SYSCALL_ENTRY, SYSCALL_EXIT, TRACEPOINT},
    probes::PROBE,
    select::Selection,
    syscalls::{Calls, TABLE},
};
use generate::Block;
use layout::Layout;
pub(crate) use splice::splice;

/// Flag that programs set beside the number of a call of a 32-bit program on a 64-bit kernel
/// (`src/bpf/syscalls.h`).
const COMPATIBLE: u32 = 1 << 31;

/// Reason why a filter can't be applied to the kernel's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterProblem {
    /// The text is no valid filter.
    #[error("{0}")]
    Text(String),
    /// Two places would have to decide, and neither can alone.
    #[error(
        "the filter asks for $comm, which only programs in the kernel know, and for something of `{0}` that only a reader of \
         its records can tell: a text in the middle of a record, or a pattern with a wildcard before its end"
    )]
    Divided(String),
    /// Too many different conditions for the events that are chosen.
    #[error(
        "the filter takes {0} instructions for all chosen events, of {most} that there is room for: choose fewer",
        most = splice::ROOM
    )]
    TooLarge(usize),
}

/// A filter for chosen events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The body of `passes`.
    pub(crate) code: Vec<u64>,
    by_reader: BTreeSet<Class>,
    /// Contexts in it that events of the kernel don't have.
    pub unknown: Vec<String>,
}

impl Filter {
    /// Compiles a filter for a selection, and takes out of that what can never pass.
    ///
    /// # Errors
    /// If it can't run.
    pub fn new(text: &str, selection: &mut Selection, calls: &Calls) -> Result<Self, FilterProblem> {
        let expression =
            tompion_filter::parse(text).map_err(|error| FilterProblem::Text(error.to_string()))?;
        let vocabulary = Vocabulary {
            calls: calls.clone(),
            tracepoints: selection.tracepoints.clone(),
            probes: selection.probes.clone(),
        };
        let mut filter = Self { unknown: unknown(&expression), ..Self::default() };
        let mut all = All { expression, vocabulary, filter: &mut filter };
        let mut blocks = BTreeMap::new();
        for (place, number) in (0..KNOWN.len()).zip(FIRST..) {
            if selection.has(number) {
                match all.block(Class::Known(place))? {
                    Some(block) => drop(blocks.insert(number, vec![(0, block)])),
                    None => selection.events &= !(1 << number),
                }
            }
        }
        blocks.insert(SYSCALL_ENTRY, all.calls(&mut selection.entries, Class::Entry)?);
        blocks.insert(SYSCALL_EXIT, all.calls(&mut selection.exits, |call| Class::Exit(call, 0))?);
        // The remaining ones are numbered from the start.
        let tracepoints = all.many(selection.tracepoints.len(), Class::Tracepoint)?;
        blocks.insert(TRACEPOINT, renumbered(&tracepoints, &mut selection.tracepoints));
        let probes = all.many(selection.probes.len(), Class::Probe)?;
        blocks.insert(PROBE, renumbered(&probes, &mut selection.probes));
        filter.renumber(&tracepoints, Class::Tracepoint);
        filter.renumber(&probes, Class::Probe);
        filter.code = splice::assemble(&blocks).map_err(FilterProblem::TooLarge)?;
        Ok(filter)
    }

    /// Whether the reader must hold a class's records against the filter as well.
    pub fn leaves_to_reader(&self, class: Class) -> bool {
        let class = match class {
            Class::Exit(call, _) => Class::Exit(call, 0),
            class => class,
        };
        self.by_reader.contains(&class)
    }

    /// Counts only those that are left.
    fn renumber(&mut self, blocks: &[Option<Block>], class: impl Fn(usize) -> Class) {
        for place in 0..blocks.len() {
            self.by_reader.remove(&class(place));
        }
        let left = blocks.iter().flatten().enumerate().filter(|(_, block)| block.by_reader);
        self.by_reader.extend(left.map(|(place, _)| class(place)));
    }
}

/// Those of a list that have blocks, with the blocks by their new numbers.
fn renumbered<T>(blocks: &[Option<Block>], list: &mut Vec<T>) -> Vec<(u32, Block)> {
    let mut kept = blocks.iter().map(Option::is_some);
    list.retain(|_| kept.next().unwrap_or(false));
    (0..).zip(blocks.iter().flatten().cloned()).collect()
}

/// Contexts that no event of the kernel has.
fn unknown(expression: &Expression) -> Vec<String> {
    let known = ["tid", "pid", "cpu", "comm", "procname"];
    let asked = expression.contexts();
    let unknown = asked.filter(|name| name.scope == Scope::Application || !known.contains(&name.head()));
    unknown.map(ToString::to_string).collect()
}

/// The chosen events, one class after another.
struct All<'a> {
    expression: Expression,
    vocabulary: Vocabulary,
    filter: &'a mut Filter,
}

impl All<'_> {
    /// The block of a class; nothing if no event of it can pass.
    fn block(&mut self, class: Class) -> Result<Option<Block>, FilterProblem> {
        let layout = Layout::of(&self.vocabulary, class);
        let mut block = self.generate(&layout)?;
        if matches!(class, Class::Exit(..)) && block.as_ref().is_some_and(Block::is_divided) {
            // Paths are seldom among an exit's fields: only if they could not be read at the entry.
            block = self.generate(&layout.without_reader())?;
        }
        if block.as_ref().is_some_and(Block::is_divided) {
            return Err(FilterProblem::Divided(self.vocabulary.event(class).name));
        }
        if block.as_ref().is_some_and(|block| block.by_reader) {
            self.filter.by_reader.insert(class);
        }
        Ok(block)
    }

    fn generate(&self, layout: &Layout) -> Result<Option<Block>, FilterProblem> {
        // An operator that doesn't fit a class's fields leaves the class out, as it does for
        // programs' events.
        let Ok(program) = tompion_filter::compile(&self.expression, layout) else { return Ok(None) };
        let block = generate::block(&program, &layout.texts()).ok_or(FilterProblem::TooLarge(usize::MAX))?;
        Ok(Some(block).filter(|block| block.can_pass))
    }

    fn many(
        &mut self,
        count: usize,
        class: impl Fn(usize) -> Class,
    ) -> Result<Vec<Option<Block>>, FilterProblem> {
        (0..count).map(|place| self.block(class(place))).collect()
    }

    /// The blocks of chosen calls, each with the number from which on it is the one.
    fn calls(
        &mut self,
        numbers: &mut Vec<u32>,
        class: impl Fn(Call) -> Class,
    ) -> Result<Vec<(u32, Block)>, FilterProblem> {
        let others = TABLE - 1;
        let mut begins = Vec::new();
        let mut kept = Vec::new();
        let (unknown, compatible) = match numbers.contains(&others) {
            true => (self.block(class(Call::Unknown))?, self.block(class(Call::Compatible))?),
            false => (None, None),
        };
        for number in 0..others {
            let block = match self.vocabulary.calls.knows(number) {
                true if numbers.contains(&number) => self.block(class(Call::Known(number)))?,
                // Not recorded: whose block it is, is all the same.
                true => continue,
                false => {
                    begins.extend(unknown.clone().map(|block| (number, block)));
                    continue;
                }
            };
            if let Some(block) = block {
                kept.push(number);
                begins.push((number, block));
            }
        }
        if unknown.is_some() || compatible.is_some() {
            let nothing =
                || Block { code: splice::refusal(), can_pass: false, by_reader: false, asks_comm: false };
            let (unknown, compatible) = (unknown.unwrap_or_else(nothing), compatible.unwrap_or_else(nothing));
            begins.extend([(others, unknown.clone()), (COMPATIBLE, compatible), (u32::MAX, unknown)]);
            kept.push(others);
        }
        *numbers = kept;
        Ok(begins)
    }
}
