//! Simulated histories, for tests and for benchmarks of ten years.

use tompion_latency::{Kind, MaxSample, Maximum, jobs::Release, length_bounds, length_place};

use super::{
    bucket_counts::BucketCounts,
    job::{JobCell, LongestResponse},
    row_codec::{Body, Cell, Longest},
};

/// Deterministic pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Seeds the generator.
    pub const fn new(begin: u64) -> Self {
        Self(begin)
    }

    /// Returns the next number (SplitMix64: Steele, Lea and Flood, 2014).
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`, or 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// Returns a number in [0, 1).
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Machine whose real-time threads are woken a thousand times per second on each CPU.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of CPUs.
    pub cpus: u32,
    /// Factor on all latencies; 1 is usual.
    pub slowness: f64,
    /// Number of watched jobs.
    pub jobs: usize,
    dice: Dice,
}

/// Per kind: usual latency in microseconds, its share of the wakeups, and the reach of the tail.
const SHAPES: [(Kind, f64, f64, f64); 6] = [
    (Kind::Wakeup, 4.0, 0.93, 9.0),
    (Kind::Shared, 9.0, 0.04, 14.0),
    (Kind::Preempted, 22.0, 0.03, 30.0),
    (Kind::MissedTimer, 3.0, 0.90, 7.0),
    (Kind::TimerWakeup, 7.0, 0.84, 11.0),
    (Kind::TimerWakeupAll, 7.5, 0.90, 12.0),
];

/// Parameters of a simulated job.
struct JobShape {
    name: &'static str,
    /// Frequency in hertz.
    hertz: u64,
    /// Usual response and deadline, in nanoseconds.
    usual: u64,
    deadline: u64,
}

const JOBS: [JobShape; 4] = [
    JobShape { name: "motor:control", hertz: 1000, usual: 130_000, deadline: 3_000_000 },
    JobShape { name: "motor:plan", hertz: 100, usual: 1_900_000, deadline: 40_000_000 },
    JobShape { name: "can:receive", hertz: 500, usual: 38_000, deadline: 1_000_000 },
    JobShape { name: "camera:frame", hertz: 30, usual: 2_500_000, deadline: 33_000_000 },
];

/// Names of functions on a CPU.
const CODE: [&str; 16] = [
    "finish_task_switch.isra.0",
    "_raw_spin_unlock_irqrestore",
    "try_to_wake_up",
    "ext4_map_blocks [ext4]",
    "blk_mq_submit_bio",
    "process_one_work",
    "worker_thread",
    "kmem_cache_alloc_noprof",
    "do_syscall_64",
    "exit_to_user_mode_loop",
    "rcu_read_unlock_special",
    "__handle_mm_fault",
    "tcp_sendmsg_locked",
    "virtqueue_add_split [virtio_ring]",
    "cpuidle_enter_state",
    "smp_call_function_many_cond",
];

impl Machine {
    /// Makes a machine with default parameters and a seed.
    pub const fn new(cpus: u32, begin: u64) -> Self {
        Self { cpus, slowness: 1.0, jobs: 0, dice: Dice::new(begin) }
    }

    /// Simulates the counts of an interval of `seconds` that ends at `end`, in nanoseconds since
    /// 1970.
    pub fn count(&mut self, seconds: u64, end: u64) -> Body {
        let mut body = Body { woken: 1000 * seconds * u64::from(self.cpus), ..Body::default() };
        body.slept = body.woken;
        for cpu in 0..self.cpus {
            // Load varies with the hour of the day and at random.
            let hour = (end / 3_600_000_000_000 % 24) as f64;
            let day = 1.0 + 0.5 * (1.0 - (hour - 14.0).abs() / 12.0);
            let load = self.slowness * day * (0.8 + 0.4 * self.dice.share()) * (1.0 + 0.15 * f64::from(cpu));
            for shape in SHAPES {
                let cell = self.cell(shape, 1000 * seconds, load, (seconds, end));
                body.cells.insert((cpu, shape.0), cell);
            }
        }
        if self.jobs > 0 {
            body.jobs.watched = 1000 * seconds;
        }
        for shape in JOBS.iter().cycle().take(self.jobs) {
            let load = self.slowness * (0.9 + 0.2 * self.dice.share());
            let cell = self.job(shape, load, (seconds, end));
            // Jobs beyond the known shapes get a number.
            let name = match body.jobs.cells.len() / JOBS.len() {
                0 => shape.name.to_owned(),
                round => format!("{}-{round}", shape.name),
            };
            body.jobs.cells.insert(name, cell);
        }
        body
    }

    /// Simulates a job: counts fall with each longer bucket, and there is a rare outlier.
    fn job(&mut self, shape: &JobShape, load: f64, (seconds, end): (u64, u64)) -> JobCell {
        let dice = &mut self.dice;
        let activations = shape.hertz * seconds;
        let mut cell = JobCell { deadlines: Some((shape.deadline, shape.deadline)), ..JobCell::default() };
        let mut left = activations - 1;
        for place in length_place((shape.usual as f64 * load) as u64).. {
            let share = (left as f64 * (0.15 + 0.15 * dice.share())).ceil() as u64;
            cell.places.add(place, share.min(left));
            left = left.saturating_sub(share);
            if left == 0 {
                break;
            }
        }
        let most = cell.places.last().map_or(0, |place| length_bounds(place).1) as f64;
        let outlier = if dice.below(2000) == 0 { 6.0 } else { 1.0 };
        let response = (most * outlier * (1.0 + 0.5 * dice.share())) as u64;
        cell.places.add(length_place(response), 1);
        cell.activations = activations;
        cell.released = [activations, 0, 0, 0];
        cell.misses = u64::from(response > shape.deadline);
        cell.sum = cell.places.filled().map(|(place, count)| length_bounds(place).0 * count).sum();
        let (until_running, until_begin) = (response / 9, response / 30);
        cell.longest = Some(LongestResponse {
            end: end.saturating_sub(dice.below(seconds * 1_000_000_000)),
            response,
            until_running: Some(until_running),
            until_begin,
            execution: response - until_running - until_begin,
            deadline: shape.deadline,
            by: Release::Timer,
            pid: 1200,
            tid: 1200 + dice.below(4) as u32,
            thread: ["axis-x", "axis-y", "axis-z", "watchdog"][dice.below(4) as usize].into(),
        });
        cell
    }

    /// Simulates a cell: counts fall with the distance from the usual latency, and there is a rare
    /// outlier.
    fn cell(
        &mut self,
        (kind, usual, share, reach): (Kind, f64, f64, f64),
        wakeups: u64,
        load: f64,
        (seconds, end): (u64, u64),
    ) -> Cell {
        let dice = &mut self.dice;
        let mut places = BucketCounts::default();
        let (peak, fall) = ((usual * load.sqrt()) as usize, (reach * load / 9.0).max(0.6));
        let mut height = wakeups as f64 * share / (fall + 1.0);
        for place in peak.saturating_sub(1)..peak + 400 {
            // A rare bucket is filled or not at random.
            let noise = if height < 30.0 { 2.0 * dice.share() } else { 0.95 + 0.1 * dice.share() };
            places.add(place, (height * noise).round() as u64);
            if height < 0.05 {
                break;
            }
            height *= (-1.0 / fall).exp();
            if height < 40.0 {
                height = height.max(40.0 * (-(place as f64 - peak as f64) / (reach * 2.2 * load)).exp());
            }
        }
        let longest = usual * load
            + reach * load * (1.0 - dice.share()).ln().abs() * 3.0
            + places.last().unwrap_or(0) as f64;
        let outlier = if dice.below(3000) == 0 { 300.0 * (1.0 + dice.share()) } else { 0.0 };
        let ns = ((longest + outlier) * 1000.0) as u64;
        places.add((ns / 1000) as usize, 1);
        let sum = places.filled().map(|(place, count)| place as u64 * 1000 * count + 500 * count).sum();
        let late = end.saturating_sub(dice.below(seconds * 1_000_000_000));
        let (other_tid, other_name) =
            [(0, "swapper"), (912, "kworker/1:2"), (4711, "logger")][dice.below(3) as usize];
        let worst = MaxSample {
            latency: ns,
            end: late,
            intended: if matches!(kind, Kind::Wakeup | Kind::Shared | Kind::Preempted) {
                0
            } else {
                late - ns
            },
            fired: late - ns * 2 / 3,
            woken: if kind == Kind::MissedTimer { 0 } else { late - ns / 2 },
            tid: 1200 + dice.below(4) as u32,
            priority: 19,
            other_tid,
            other_priority: 120,
            name: ["axis-x", "axis-y", "axis-z", "watchdog"][dice.below(4) as usize].into(),
            other_name: other_name.into(),
            stack: Vec::new(),
        };
        // An idle CPU has no stack; others are held at a few recurring functions.
        let code = match worst.other_tid {
            0 => Vec::new(),
            _ => {
                let first = (ns % CODE.len() as u64) as usize;
                CODE.iter().cycle().skip(first).take(3).map(|function| (*function).to_owned()).collect()
            }
        };
        Cell { sum, longest: Longest { ns, is: Maximum::Exact, worst: Some(worst), code }, places }
    }
}
