//! Counters of system management interrupts, passed to the BPF programs.

use std::os::fd::AsFd as _;

use aya::{Ebpf, maps::Map};
use tompion_os::Counter;

use crate::{Error, programs::missing};

/// Name of the map of counters, by CPU.
pub const MAP: &str = "firmware_counts";

/// Opens the counters of all online CPUs; none on CPUs without one, in virtual machines, and where
/// that isn't permitted.
pub fn counters(cpus: u32) -> Vec<(u32, Counter)> {
    (0..cpus).filter_map(|cpu| Some((cpu, Counter::of_firmware(cpu).ok()?))).collect()
}

/// Passes counters to the programs. They stay open as long as the programs' map.
pub fn give(counters: &[(u32, Counter)], ebpf: &Ebpf) -> Result<(), Error> {
    let Some(Map::PerfEventArray(map)) = ebpf.map(MAP) else { return Err(missing(MAP)) };
    for (cpu, counter) in counters {
        counter.give(map.fd().as_fd(), *cpu).map_err(tompion_kernel::Error::Rings)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Duration};

    use super::*;
    use crate::{
        attribution::{EventKind, interrupts_of_all},
        test_monitor::TestMonitor,
        threshold::{ThresholdRule, ThresholdWatcher},
    };

    const NAME: &str = "counted-late";

    /// Counters of the CPU clock, which always runs, instead of the firmware's: only the event
    /// differs.
    fn clocks() -> Vec<(u32, Counter)> {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/msr/type");
        let Ok(kind) = kind.unwrap_or_default().trim().parse() else { return Vec::new() };
        let clock = |cpu| Some((cpu, Counter::open(kind, 0, cpu).ok()?));
        (0..tompion_os::possible_cpus()).filter_map(clock).collect()
    }

    #[test]
    fn given_a_counter_that_goes_on_then_moments_say_by_how_much_and_since_when() {
        let clocks = clocks();
        if clocks.is_empty() {
            return eprintln!("SKIPPED, the processor's counters can't be used here");
        }
        let Some((own, _monitor)) = TestMonitor::new("firmware") else { return };
        let rule = ThresholdRule { kind: None, threads: NAME.into(), limit: 10 };
        let mut watch = ThresholdWatcher::begin_counting(own.name(), &[rule], &clocks)
            .unwrap_or_else(|error| panic!("{error}"));
        // The programs' map holds them.
        drop(clocks);
        let sleeper = thread::Builder::new().name(NAME.into()).spawn(|| {
            tompion_os::run_fifo(60).expect("a real-time priority");
            (0..500).for_each(|_| thread::sleep(Duration::from_millis(1)));
        });
        sleeper.expect("a thread").join().expect("a thread that sleeps");
        let caught = watch.take();
        drop(watch);
        let caught = caught.expect("a late wake-up");
        let (begin, end) = (caught.question.begin(), caught.question.end);
        let cpu = &caught.history.cpus[caught.question.cpu as usize];
        let looks: Vec<(u64, u64)> = cpu
            .events
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Firmware { since, .. } => Some((since, event.time)),
                _ => None,
            })
            .collect();
        assert!(looks.iter().all(|(since, time)| since < time), "{looks:?}");
        assert!(looks.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{looks:?}");
        // The last reading is in that very event.
        assert!(
            looks.last().is_some_and(|(_, time)| *time + 1_000_000 > end && *time >= begin),
            "{looks:?} {end}"
        );
        assert!(caught.counts_firmware && interrupts_of_all(&caught.history, begin, end) > 0);
    }
}
