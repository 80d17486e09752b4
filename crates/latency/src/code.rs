//! Which code held a CPU, by the stacks that programs take of the longest latencies.

use std::collections::BTreeMap;

use tompion_kernel::stacks::KernelSymbols;

use crate::{
    blame::code_of,
    report::{Late, Report},
};

/// Names of the kernel's functions, as far as they were asked for. All of them would be some 10 MB.
#[derive(Default)]
pub struct Names {
    known: BTreeMap<u64, String>,
}

impl Names {
    /// Names the code of all that a report calls longest.
    pub fn tell(&mut self, report: &mut Report) {
        self.learn(longest(report).flat_map(|late| late.stack.clone()).collect());
        for late in longest(report) {
            let names = late.stack.iter().filter_map(|address| self.known.get(address).cloned());
            late.code = code_of(&names.collect::<Vec<_>>());
        }
    }

    fn learn(&mut self, mut addresses: Vec<u64>) {
        addresses.retain(|address| !self.known.contains_key(address));
        if addresses.is_empty() {
            return;
        }
        let symbols = KernelSymbols::of_this_kernel();
        for address in addresses {
            let name = symbols.name(address, true).unwrap_or_else(|| format!("{address:#x}"));
            self.known.insert(address, name);
        }
        drop(symbols);
        tompion_os::give_back_freed();
    }
}

fn longest(report: &mut Report) -> impl Iterator<Item = &mut Late> {
    let kinds = report.cpus.iter_mut().flat_map(|cpu| cpu.kinds.values_mut());
    kinds.filter_map(|kind| kind.worst.as_mut())
}
