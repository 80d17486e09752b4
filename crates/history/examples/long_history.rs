//! Writes a simulated history up to now: `long_history FILE DAYS CPUS`.
//!
//! All six kinds, a thousand wakeups per second on each CPU, four jobs, varying load, and a new
//! kernel each year. Prints the size of the file in JSON after each number of days that is a power
//! of two, and at the end.

use std::{env, fs, path::Path, process::ExitCode};

use tompion_history::{Fact, Incident, Row, Store, simulate::Machine};
use tompion_latency::Kind;

const FIVE_MINUTES: i64 = 300_000;
const ROWS: i64 = 288;
const DAY: i64 = ROWS * FIVE_MINUTES;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let numbers = |words: &[String]| Some((words.get(1)?.parse().ok()?, words.get(2)?.parse().ok()?));
    let (Some(path), Some((days, cpus))) = (words.first(), numbers(&words)) else {
        eprintln!("usage: long_history FILE DAYS CPUS");
        return ExitCode::from(2);
    };
    match write(Path::new(path), days, cpus) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &Path, days: i64, cpus: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut store = Store::open(path)?;
    let mut machine = Machine::new(cpus, 1);
    machine.jobs = 4;
    let begin = (tompion_os::realtime_ns() / 1_000_000) as i64 / FIVE_MINUTES * FIVE_MINUTES - days * DAY;
    let mut system = 0;
    for day in 0..days {
        let today = begin + day * DAY;
        // A new kernel each year, no better on average.
        if day % 365 == 0 {
            let kernel = format!("6.{}.0-rt", 1 + day / 365);
            let facts =
                [("kernel", kernel.as_str()), ("processor", "A made-up CPU"), ("governor", "performance")];
            let facts = facts.map(|(name, value)| Fact { name: name.into(), value: value.into() });
            system = store.begin("tompion-monitor", &facts, ("made-up", today))?;
            machine.slowness = [1.0, 1.15, 0.9, 1.3][(day / 365 % 4) as usize];
        }
        let row = |number: i64| {
            let start = today + number * FIVE_MINUTES;
            let body = machine.count(300, (start + FIVE_MINUTES) as u64 * 1_000_000);
            Row { start, duration: FIVE_MINUTES, system, body }
        };
        store.append(&(0..ROWS).map(row).collect::<Vec<_>>())?;
        if day % 97 == 50 {
            store.record_incident(&incident(today))?;
        }
        if (day + 1).count_ones() == 1 || day + 1 == days {
            println!("{{\"days\": {}, \"bytes\": {}}}", day + 1, fs::metadata(path)?.len());
        }
    }
    Ok(())
}

fn incident(today: i64) -> Incident {
    Incident {
        time_ns: (today + DAY / 3) as u64 * 1_000_000,
        cpu: 1,
        tid: 1201,
        thread: "axis-x".into(),
        kind: Some(Kind::TimerWakeup),
        latency_ns: 612_345,
        cause: "interrupts off in e1000_watchdog".into(),
        folder: "/var/lib/tompion/incidents/made-up".into(),
    }
}
