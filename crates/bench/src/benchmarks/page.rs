//! Generator of `docs/benchmarks.md` and its plots, from the newest results.

pub mod plots;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::budgets::{self, Budget};
use super::machine;
use super::results::Results;
use tompion_tasks::workspace::Workspace;

/// The newest results of each benchmark, as far as there are any.
pub struct Stored {
    results: Vec<Results>,
    /// Instruction counts by which `./x test instructions` judges the event path.
    instructions: String,
}

impl Stored {
    /// Reads what was kept; what was measured just now goes before it.
    pub fn load<'a>(
        workspace: &Workspace,
        names: impl Iterator<Item = &'a str>,
        fresh: &[Results],
    ) -> Result<Self> {
        let mut results = Vec::new();
        for name in names {
            let found = fresh.iter().find(|results| results.benchmark == name).cloned();
            results.extend(found.map_or_else(|| Results::newest(workspace, name), |found| Ok(Some(found)))?);
        }
        let file = workspace.root.join("benches/event/instructions.txt");
        let instructions = fs::read_to_string(file).unwrap_or_default();
        Ok(Self { results, instructions })
    }

    /// A benchmark's results.
    pub fn get(&self, benchmark: &str) -> Option<&Results> {
        self.results.iter().find(|results| results.benchmark == benchmark)
    }

    /// Budgets of the design.
    pub fn budgets(&self) -> Vec<Budget> {
        budgets::of_all(self)
    }
}

/// Writes page and plots into a folder; returns the page's file.
pub fn write(stored: &Stored, folder: &Path) -> Result<PathBuf> {
    let pictures = folder.join("benchmarks");
    remove_plots(&pictures)?;
    fs::create_dir_all(&pictures).with_context(|| format!("cannot make {}", pictures.display()))?;
    for (name, svg) in plots::all(stored) {
        let file = pictures.join(format!("{name}.svg"));
        fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let file = folder.join("benchmarks.md");
    fs::write(&file, wrapped(&text(stored, &pictures)))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Removes the plots of the last page; the folder also has documents.
fn remove_plots(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let file = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        if file.extension().is_some_and(|extension| extension == "svg") {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(())
}

const INTRODUCTION: &str = "\
The cost of Tompion, compared with bare hardware, with the cheapest alternative in a program, and with LTTng-UST, \
the field's standard. `./x bench all` writes this page and its plots from the newest run of each benchmark, whose \
date is below it. The data are in [benches/results](../benches/results); [benches/](../benches/README.md) describes \
the methods.

Machines differ, and one machine differs from minute to minute. So all compared values were measured in the same \
run, interleaved (A B C … A B C …), each repetition in a process of its own. Values are medians, with minimum and \
maximum in parentheses; judge by the ratios. Every trace was read, most of them with babeltrace2; missing events are \
reported.

**Tompion** is the default on x86-64 with Linux 4.18 and glibc 2.35 or later: an event is appended in one \
restartable sequence (rseq). **Tompion without rseq** is its other producer, for systems without rseq. \
**LTTng-UST** is recorded by its session daemon, with buffers of the same size.
";

fn text(stored: &Stored, pictures: &Path) -> String {
    let mut page = format!("# Benchmarks\n\n{INTRODUCTION}\n");
    page += "## The machine\n\n";
    for line in machine_lines(stored) {
        page += &format!("- {line}\n");
    }
    page += &budget_section(stored);
    for section in SECTIONS {
        page += &(section.write)(stored, section, pictures);
    }
    page += AGAIN;
    page
}

/// Maximum columns of a line of text.
const COLUMNS: usize = 100;

/// Wraps paragraphs and list items; tables, headings, plots and code stay as they are.
fn wrapped(text: &str) -> String {
    let mut page = String::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with(['|', '#', '!', ' ']) || line.starts_with("```") {
            page += &format!("{line}\n");
            continue;
        }
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut column = 0;
        for word in line.split(' ') {
            let width = word.chars().count();
            let space = match column {
                0 => "",
                _ if column + 1 + width > COLUMNS => {
                    page.push('\n');
                    column = 0;
                    indent
                }
                _ => " ",
            };
            page += &format!("{space}{word}");
            column += space.len() + width;
        }
        page.push('\n');
    }
    page
}

fn machine_lines(stored: &Stored) -> Vec<String> {
    match stored.results.first() {
        Some(results) => results.machine.clone(),
        None => machine::description().unwrap_or_default().lines().map(|line| line[2..].to_owned()).collect(),
    }
}

fn budget_section(stored: &Stored) -> String {
    let budgets = stored.budgets();
    let missed: Vec<&Budget> = budgets.iter().filter(|budget| !budget.is_kept()).collect();
    let verdict = match missed.len() {
        0 => format!("All {} were kept.", budgets.len()),
        missed => format!("Of {} budgets {missed} were missed.", budgets.len()),
    };
    let mut section = format!(
        "\n## Budgets\n\nThe design limits the cost of Tompion, as ratios within one run. {verdict} \
         The column `by the smallest` has the ratio of the minima, which other work on the machine \
         disturbs least.\n\n{}",
        budgets::table(&budgets).markdown()
    );
    if missed.iter().any(|budget| budget.what.starts_with("event")) {
        section += &profile(stored);
    }
    section
}

/// Shares of an event's time, for when it takes too much.
fn profile(stored: &Stored) -> String {
    let counts: String = stored
        .instructions
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut spread = String::new();
    for label in ["bare cycle counter (rdtsc)", "Tompion, overwrite", "Tompion, overwrite, tid"] {
        let Some(figure) = stored.get("event").and_then(|event| event.find("tight", label, "1")) else {
            continue;
        };
        let values: Vec<_> = figure.values.iter().map(|value| format!("{value:.1}")).collect();
        spread += &format!("- {label}: {}\n", values.join(", "));
    }
    format!(
        "\nInstructions of an event, from its site and back, counted by single steps (`./x test \
         instructions`, which checks every commit):\n\n```text\n{counts}```\n\nThe first event has two \
         8-byte fields and its thread. Most of its instructions are the restartable section; the others are \
         the agent before it and the program's own site. One of them reads the cycle counter, which takes \
         most of the time. The path is the same in each run, the time is not. One ring in twelve costs 3 ns \
         more for each event as long as it lives, one in forty 8 ns. All rings are slower for a while when \
         other virtual machines of the host are busy: see [the cost of the event \
         path](design/ring.md#what-the-event-path-costs). All repetitions of this run, in nanoseconds per \
         event:\n\n{spread}"
    )
}

/// A part of the page.
struct Section {
    title: &'static str,
    benchmark: &'static str,
    /// The groups that have a table, each below its plot.
    groups: &'static [&'static str],
    text: &'static str,
    write: fn(&Stored, &Section, &Path) -> String,
}

const SECTIONS: &[Section] = &[
    Section {
        title: "One event",
        benchmark: "event",
        groups: &["tight", "burst", "work"],
        text: "An event with two 8-byte fields, in a loop that does nothing else. `tight` records in flight-recorder \
               mode; `burst` records to disk, in bursts of 4,000 events with pauses of 5 ms. Most of the time is the \
               clock read, which no event can do without. In `work`, dependent multiplications are between the \
               events, so that the processor can overlap them; there, the empty loop has the multiplications \
               alone. Columns are numbers of threads, each on its own CPU.",
        write: transposed,
    },
    Section {
        title: "By number of fields",
        benchmark: "shapes",
        groups: &["by number of fields"],
        text: "Fields are unsigned integers of 8 bytes. Flight recorder, one thread, no contexts.",
        write: plain,
    },
    Section {
        title: "By type",
        benchmark: "shapes",
        groups: &["by type of one field"],
        text: "One field of each type. A string is measured and copied while the event is recorded; the arrays and \
               sequences have 64 bytes.",
        write: plain,
    },
    Section {
        title: "By threads",
        benchmark: "shapes",
        groups: &["by threads"],
        text: "Each event with its thread. Up to the number of CPUs, each thread has its own CPU, and the slowest \
               thread counts. More threads share the CPUs, and their CPU time counts.",
        write: plain,
    },
    Section {
        title: "By context",
        benchmark: "shapes",
        groups: &["by context"],
        text: "Contexts recorded with each event, and filters. Tompion's traces have the process and the program's \
               name once per process, so neither is recorded with the event. The filter compares one field \
               with a number. `Not recorded` is an event that no recording enables: the cost that remains in a \
               program that is shipped with its events.",
        write: plain,
    },
    Section {
        title: "Counting in place",
        benchmark: "counts",
        groups: &["counting in place"],
        text: "An event with two integers of 4 bytes, or a text of 8, on one thread: recorded by a flight recorder, or \
               counted in the program by `--count` without a record. Each event was found in the counts.",
        write: plain,
    },
    Section {
        title: "By sessions",
        benchmark: "sessions",
        groups: &["by sessions"],
        text: "The same event recorded by several flight recorders at once, with its thread: the figure, and the \
               figure divided by the number of sessions.",
        write: plain,
    },
    Section {
        title: "The worst append",
        benchmark: "gaps",
        groups: &["an append takes at most"],
        text: "Duration of single appends, of a hundred million in ten blocks, in a real-time thread. The thread is \
               pinned, under SCHED_FIFO, with memory locked and caches warm, while the recorder writes to memory. The \
               cycle counter is read before and after each append, ordered by fences; the histogram is updated \
               outside of the interval. The empty loop has the two reads and nothing between them: it shows the \
               machine's own delays, such as interrupts and other virtual machines of the host. LTTng's application \
               wakes the consumer when a sub-buffer is full, unless the consumer has a read timer (10 ms here). \
               Tompion's never does.",
        write: plain,
    },
    Section {
        title: "Memory",
        benchmark: "memory",
        groups: &[
            "added to the program's RSS by recording",
            "added to the program's PSS by recording",
            "recorder's processes, RSS",
            "recorder's processes, PSS",
        ],
        text: "With default settings: memory of a program beyond the same program built without a tracer, after a \
               million events a second from one or two threads. PSS divides shared pages among their users. A ring's \
               memory is allocated when its CPU is first used.",
        write: plain,
    },
    Section {
        title: "Bytes an event on disk",
        benchmark: "bytes",
        groups: &["without contexts", "with the thread"],
        text: "Size of all files of a trace, divided by its events. Both write CTF 1.8, which any CTF reader opens.",
        write: plain,
    },
    Section {
        title: "The highest rate without loss",
        benchmark: "rate",
        groups: &["without loss for 1.5 s", "held for 6 s"],
        text: "Producers emit their share in each millisecond and sleep for the rest of it. The recorder has the CPU \
               time that they leave, on the same CPUs. The first table has the highest rate at which no event is lost \
               and no producer late, found by bisection down to 6 %. The second has nine tenths of the lowest of \
               these, held for six seconds. Both tracers have four equal sub-buffers for each CPU, of 8 MiB or of \
               1 MiB. Those of 1 MiB are full after some milliseconds: they show for how long the machine keeps a \
               recorder from running.",
        write: plain,
    },
    Section {
        title: "Every allocation of `find`",
        benchmark: "find",
        groups: &["find"],
        text: "`find /usr -regex '.*a'` with each malloc and free recorded by a preloaded wrapper: the experiment of \
               Fournier, Desnoyers and Dagenais (2009). Wall time with a warm cache, two million events, each with \
               its thread.",
        write: transposed,
    },
    Section {
        title: "The kernel",
        benchmark: "kernel",
        groups: &[
            super::kernel::ADDED,
            "microbenchmarks on one CPU",
            "microbenchmarks on two CPUs",
            "throughput on one CPU",
            "throughput on two CPUs",
            "run time on one CPU",
            "run time on two CPUs",
        ],
        text: "The cost of kernel recording for its users: without a tracer, and with Tompion, ftrace and perf. Each \
               tracer is attached but stopped, a flight recorder, or recording to disk. The first table has the cost \
               of a system call's two events alone: the difference between alternating runs with and without \
               them. The others record context switches, wakeups, process lifetimes and page faults as well, and have \
               totals: microbenchmarks like lmbench's, then programs. These are the network traffic and the file \
               operations of a file server (tbench, dbench), messages between processes (hackbench), and a compiler.",
        write: transposed,
    },
];

/// Plot and table of each group: a row for each place, a column for each label.
fn plain(stored: &Stored, section: &Section, pictures: &Path) -> String {
    written(stored, section, pictures, Results::table)
}

/// Formats the table with a row for each label and a column for each place.
fn transposed(stored: &Stored, section: &Section, pictures: &Path) -> String {
    written(stored, section, pictures, Results::table_by_label)
}

fn written(
    stored: &Stored,
    section: &Section,
    pictures: &Path,
    table: impl Fn(&Results, &str) -> tompion_tasks::table::Table,
) -> String {
    let mut page = format!("\n## {}\n\n{}\n", section.title, section.text);
    let Some(results) = stored.get(section.benchmark) else {
        return page + &format!("\nNot measured yet (`./x bench {}`).\n", section.benchmark);
    };
    for group in section.groups {
        if results.group(group).next().is_none() {
            continue;
        }
        if section.groups.len() > 1 {
            page += &format!("\n**{}**\n", super::results::capitalised(group));
        }
        let picture = plots::file_name(section.benchmark, group);
        if pictures.join(format!("{picture}.svg")).is_file() {
            page += &format!(
                "\n![{}, {group}: the figures of the table](benchmarks/{picture}.svg)\n",
                section.title
            );
        }
        page += &format!("\n{}", table(results, group).markdown());
    }
    page += &notes(results, section);
    page + &format!("\n{} repetitions, {}.\n", results.repetitions, results.date)
}

/// Failures and losses.
fn notes(results: &Results, section: &Section) -> String {
    let figures = || results.figures.iter().filter(|figure| section.groups.contains(&figure.group.as_str()));
    let mut notes = String::new();
    for figure in figures() {
        if let Some(failure) = &figure.failure {
            notes += &format!("- † {}, {}: {failure}\n", figure.label, figure.at);
        }
        let count = |name: &str| figure.counts.get(name).copied();
        let lost = match (figure.group.as_str(), count("emitted"), count("arrived")) {
            ("burst", Some(emitted), Some(arrived)) => emitted - arrived,
            _ => count("lost").unwrap_or(0.0),
        };
        if lost > 0.0 && figure.at != "worst of a block" {
            let what = if figure.median().is_none() { "" } else { " in the worst repetition" };
            notes += &format!("- {}, {}: {lost:.0} events were lost{what}\n", figure.label, figure.at);
        }
    }
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}

const AGAIN: &str = "\
\n## Measuring again

`./x bench all` measures everything and writes this page, in some sixty minutes on an idle machine: other work \
shows in the values and the whiskers. `./x bench NAME` runs one benchmark (`event`, `shapes`, `counts`, `sessions`, \
`gaps`, `memory`, `bytes`, `rate`, `find`, `read`, `kernel`). `./x bench page` writes the page again from stored results, and \
`--quick` tests in a minute or two whether everything works. LTTng and babeltrace2 are the distribution's packages; \
what can't be measured is left out or marked. [benches/](../benches/README.md) has the rules for new benchmarks.
";

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::super::results::{Figure, Who};
    use super::*;

    #[test]
    fn paragraphs_and_list_items_are_wrapped() {
        let word = "word ".repeat(40);
        let text = wrapped(&format!("{word}end\n| {word} |\n```text\n{word}x\n```\n- {word}item\n"));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].len() <= COLUMNS && lines[2].ends_with("end"), "{text}");
        assert_eq!((lines[3], lines[5]), (&*format!("| {word} |"), &*format!("{word}x")));
        assert!(lines[7].starts_with("- word") && lines[8].starts_with("  word"), "{text}");
        assert_eq!(lines.iter().filter(|line| line.len() > COLUMNS).count(), 2, "{text}");
    }

    #[test]
    fn the_page_has_a_plot_a_table_and_what_failed() {
        let folder = TestDir::new("page");
        let mut ours = Figure::new("by number of fields", Who::Tompion, "Tompion", "2", "ns an event");
        ours.note(Ok(11.0));
        let mut theirs = Figure::new("by number of fields", Who::Lttng, "LTTng-UST", "2", "ns an event");
        theirs.failure = Some("no daemon".into());
        let results = Results {
            benchmark: "shapes".into(),
            date: "2026-01-31".into(),
            machine: vec!["CPU: one".into()],
            repetitions: 1,
            figures: vec![ours, theirs],
        };
        let stored = Stored { results: vec![results], instructions: String::new() };
        fs::create_dir_all(folder.join("benchmarks")).unwrap();
        for name in ["notes.md", "old.svg"] {
            fs::write(folder.join("benchmarks").join(name), name).unwrap();
        }
        let page = fs::read_to_string(write(&stored, &folder).unwrap()).unwrap();
        assert!(page.contains("](benchmarks/shapes-by-number-of-fields.svg)"), "{page}");
        assert!(page.contains("| 2 | 11.0 | failed |"), "{page}");
        assert!(page.contains("† LTTng-UST, 2: no daemon"));
        assert!(page.contains("Not measured yet (`./x bench gaps`)"));
        // Old plots are gone, documents stay.
        let exists = |name: &str| folder.join("benchmarks").join(name).exists();
        assert_eq!((exists("old.svg"), exists("notes.md")), (false, true));
    }
}
