//! Symbols of the stacks that programs store with maxima: which code occupied a CPU.

use std::collections::BTreeMap;

use tompion_kernel::stacks::KernelSymbols;

use crate::{
    attribution::code_of,
    report::{Late, Report},
};

/// Maximum number of cached names. A long-lived process meets more, and modules come and go.
const MAX_NAMES: usize = 4096;

/// Cache of the kernel's symbols that were needed. All of them would take some 10 MB.
#[derive(Debug, Default)]
pub struct StackSymbols {
    known: BTreeMap<u64, String>,
}

impl StackSymbols {
    /// Names the code of all maxima of a report.
    pub fn tell(&mut self, report: &mut Report) {
        self.name(longest(report).map(|late| (late.stack.as_slice(), &mut late.code)));
    }

    /// Names the code that occupied the CPU for each stack.
    pub fn name<'a>(&mut self, stacks: impl Iterator<Item = (&'a [u64], &'a mut Vec<String>)>) {
        let stacks: Vec<_> = stacks.collect();
        self.learn(stacks.iter().flat_map(|(stack, _)| *stack).copied().collect());
        for (stack, code) in stacks {
            let names = stack.iter().filter_map(|address| self.known.get(address).cloned());
            *code = code_of(&names.collect::<Vec<_>>());
        }
    }

    fn learn(&mut self, addresses: Vec<u64>) {
        let is_new = |address: &&u64| !self.known.contains_key(*address);
        let mut new: Vec<u64> = addresses.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return;
        }
        if self.known.len() + new.len() > MAX_NAMES {
            self.known.clear();
            new = addresses;
        }
        let symbols = KernelSymbols::around(&new);
        for address in new {
            let name = symbols.name(address, true).unwrap_or_else(|| format!("{address:#x}"));
            self.known.insert(address, name);
        }
    }
}

fn longest(report: &mut Report) -> impl Iterator<Item = &mut Late> {
    let of_cpus = report.cpus.iter_mut().flat_map(|cpu| cpu.kinds.values_mut());
    let of_groups = report.groups.iter_mut().flat_map(|group| group.kinds.values_mut());
    of_cpus.chain(of_groups).filter_map(|kind| kind.worst.as_mut())
}
