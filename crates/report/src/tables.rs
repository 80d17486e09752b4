//! Tables of the page.

use tompion_rttest::{
    campaign::{Loops, Who},
    cyclic::Measured,
    prepare::Prepared,
};

use crate::{
    document::{Document, State},
    figures::{self, ALL, GapChoice, MEASURES, Spread, UNDISTURBED},
    format::{format_duration, with_thousands},
    html::escape,
};

/// Returns the number of a recorder's colour.
pub fn colour(who: Who) -> usize {
    match who {
        Who::None => 0,
        Who::Disabled => 1,
        Who::User => 2,
        Who::LttngTimer => 3,
        Who::LttngWakeUps => 4,
        Who::Kernel => 5,
        Who::Both => 6,
    }
}

/// Returns a table. Cells are HTML; one that begins with `<td` has its own tag.
fn table(class: &str, head: &[String], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells
            .iter()
            .map(|cell| if cell.starts_with("<td") { cell.clone() } else { format!("<{tag}>{cell}</{tag}>") })
            .collect()
    };
    let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\">\n<tr>{}</tr>\n{rows}</table></div>\n",
        cells("th", head)
    )
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| escape(word)).collect()
}

/// Describes the load that ran during the tests.
pub fn describe_load(document: &Document) -> String {
    let names: Vec<&str> = document.results.loads.iter().map(|load| load.name()).collect();
    match &names[..] {
        [] => "without load".into(),
        names => format!("under the load of {}", names.join(", ")),
    }
}

/// Returns the text with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Lists measurements and settings that failed, each line once.
pub fn limitations(document: &Document) -> Vec<String> {
    let results = &document.results;
    let wakeups = results.cyclic.iter().flat_map(|wakeups| {
        let threads = wakeups.outcome.cpus.iter().flat_map(|measured| &measured.prepared.could_not);
        threads.chain(&wakeups.outcome.could_not)
    });
    let hwgap = results.hwgap.cpus.iter().flat_map(|measured| &measured.prepared.could_not);
    let preempt = results.preempt.threads.iter().flat_map(|thread: &Prepared| &thread.could_not);
    let loops = results.npt.iter().flat_map(|loops| &loops.runs).flat_map(|run| &run.setup.could_not);
    let all =
        results.could_not.iter().chain(wakeups).chain(hwgap).chain(&results.hwgap.could_not).chain(preempt);
    let mut lines: Vec<String> = Vec::new();
    for line in all.chain(loops) {
        if !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    lines
}

fn titled(document: &Document, is_titled: bool) -> String {
    if is_titled { format!("<h3>{}</h3>\n", escape(&document.name)) } else { String::new() }
}

pub fn wake_ups(document: &Document, is_titled: bool) -> String {
    let head =
        words(&["recorder, CPU", "wakeups", "min", "mean", "50 %", "99 %", "99.99 %", "max", "missed"]);
    let mut rows = Vec::new();
    for wakeups in &document.results.cyclic {
        for Measured { prepared, late, missed } in &wakeups.outcome.cpus {
            let share = |name: &str| late.percentiles.get(name).copied().unwrap_or_default();
            let mut row = vec![
                format!("{}, CPU {}", swatched(wakeups.recorder), prepared.cpu),
                with_thousands(late.count),
            ];
            let times = [late.min_ns, late.mean_ns, share("50"), share("99"), share("99.99")];
            row.extend(times.map(format_duration));
            let class = if late.max_ns > document.limit_ns as f64 { "bad" } else { "good" };
            row.push(format!("<td class=\"{class}\">{}</td>", format_duration(late.max_ns)));
            row.push(with_thousands(*missed));
            rows.push(row);
        }
    }
    titled(document, is_titled) + &table("", &head, &rows)
}

fn swatched(who: Who) -> String {
    format!("<span class=\"swatch c{}\"></span>{}", colour(who), escape(who.name()))
}

/// Formats a median with the range of the runs below it.
fn range(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    let wide = if min == max {
        String::new()
    } else {
        format!("<br><span class=\"range\">{}–{}</span>", format_duration(min), format_duration(max))
    };
    format!("{}{wide}", format_duration(median))
}

pub fn gaps(document: &Document, is_titled: bool) -> String {
    let part = |title: &str, choice: GapChoice| {
        let mut head = words(&[title]);
        head.extend(MEASURES.iter().map(|(name, _)| escape(name)));
        head.push("lost".into());
        let loops = document.results.npt.iter().filter(|loops| !loops.runs.is_empty());
        let rows: Vec<Vec<String>> = loops.map(|loops| gap_row(loops, choice)).collect();
        table("narrow", &head, &rows)
    };
    titled(document, is_titled)
        + &part("undisturbed gaps", UNDISTURBED)
        + &part("all gaps", ALL)
        + "<p class=\"soft\">Medians of the rounds, with the range of the rounds below them. Lost: events of the \
           program and the kernel that are missing in the traces of all rounds.</p>\n"
}

fn gap_row(loops: &Loops, choice: GapChoice) -> Vec<String> {
    let (lost, _) = figures::losses(loops);
    let mut row = vec![swatched(loops.recorder)];
    row.extend(MEASURES.iter().map(|measure| range(figures::spread(loops, choice, *measure))));
    let is_recorded = loops.runs.iter().any(|run| run.trace.is_some());
    let class = if lost == 0 { "good" } else { "bad" };
    row.push(if is_recorded {
        format!("<td class=\"{class}\">{}</td>", with_thousands(lost))
    } else {
        "–".into()
    });
    row
}

pub fn preemption(document: &Document) -> String {
    let preempt = &document.results.preempt;
    let head = words(&["woken by", "rounds", "preempted", "min", "mean", "99 %", "99.9 %", "max"]);
    let rows = [("the thread of lower priority", &preempt.by_thread), ("a timer", &preempt.by_timer)].map(
        |(name, way)| {
            let late = &way.until_running;
            let share = |name: &str| late.percentiles.get(name).copied().unwrap_or_default();
            let class = if way.preempted == way.rounds { "good" } else { "bad" };
            let mut row = vec![
                name.to_owned(),
                with_thousands(way.rounds),
                format!("<td class=\"{class}\">{}</td>", with_thousands(way.preempted)),
            ];
            row.extend(
                [late.min_ns, late.mean_ns, share("99"), share("99.9"), late.max_ns].map(format_duration),
            );
            row
        },
    );
    format!(
        "<h2>Priorities</h2>\n<p>Two threads on one CPU. The one of higher priority must run before the other continues; \
         times are from its wakeup until it runs.</p>\n{}",
        table("", &head, &rows)
    )
}

pub fn hardware(document: &Document) -> String {
    let hwgap = &document.results.hwgap;
    let head = words(&["CPU, cause", "gaps above 10 µs", "max", "total"]);
    let mut rows = Vec::new();
    for measured in &hwgap.cpus {
        for sum in &measured.causes {
            rows.push(vec![
                format!("CPU {}, {}", measured.prepared.cpu, sum.cause.words()),
                with_thousands(sum.gaps),
                format_duration(sum.longest_ns),
                format_duration(sum.together_ns),
            ]);
        }
        if let Some(smi) = measured.smi {
            rows.push(vec![
                format!("CPU {}, system management (SMI)", measured.prepared.cpu),
                with_thousands(smi),
                String::new(),
                String::new(),
            ]);
        }
    }
    let looked = hwgap.cpus.iter().map(|measured| measured.looked_ns).max().unwrap_or(0);
    let at_once = match hwgap.at_once.iter().map(|time| time.ns).max() {
        Some(longest) => format!(
            "All CPUs stopped at the same time {} times, for at most {}.",
            with_thousands(hwgap.at_once.len() as u64),
            format_duration(longest as f64)
        ),
        None => "All CPUs never stopped at the same time.".into(),
    };
    format!(
        "<h2>Hardware gaps</h2>\n<p>A thread on each CPU read the clock for {}. A gap that no interrupt and no other thread \
         explains was caused by firmware or a hypervisor. {at_once}</p>\n{}",
        format_duration(looked as f64),
        table("", &head, &rows)
    )
}

pub fn settings(document: &Document) -> String {
    let head = words(&["setting", "", "found", "why it matters", "what changes it"]);
    let mut settings: Vec<_> = document.settings.iter().collect();
    let order = |state| match state {
        State::Bad => 0,
        State::Drawback => 1,
        State::Unknown => 2,
        State::Good => 3,
    };
    settings.sort_by_key(|setting| order(setting.state));
    let rows: Vec<Vec<String>> = settings
        .into_iter()
        .map(|setting| {
            let (class, words) = match setting.state {
                State::Good => ("good", "✓ good"),
                State::Drawback => ("drawback", "△ note"),
                State::Bad => ("bad", "✗ bad"),
                State::Unknown => ("soft", "? unknown"),
            };
            let mend = setting.mend.as_deref().map(|mend| format!("<pre>{}</pre>", escape(mend)));
            vec![
                escape(&setting.name),
                format!("<td class=\"{class}\" style=\"white-space:nowrap\">{words}</td>"),
                escape(&setting.found),
                escape(&setting.why),
                mend.unwrap_or_default(),
            ]
        })
        .collect();
    format!(
        "<h2>Settings</h2>\n<p>As <code>tompion doctor --rt</code> reports them. The commands need root.</p>\n{}",
        table("prose", &head, &rows)
    )
}

pub fn machine(documents: &[&Document]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for fact in documents.iter().flat_map(|document| &document.machine) {
        if !names.contains(&fact.name.as_str()) {
            names.push(&fact.name);
        }
    }
    let mut head = words(&["property"]);
    match documents {
        [_] => head.push("value".into()),
        _ => head.extend(documents.iter().map(|document| escape(&document.name))),
    }
    let row = |name: &&str| {
        let value = |document: &&Document| {
            let fact = document.machine.iter().find(|fact| fact.name == *name);
            fact.map_or_else(|| "–".into(), |fact| escape(&fact.value))
        };
        let mut row = vec![escape(name)];
        row.extend(documents.iter().map(value));
        row
    };
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    format!("<h2>The machine</h2>\n{}", table("prose", &head, &rows))
}

/// Compares the main figures of two reports.
pub fn comparison(first: &Document, second: &Document) -> String {
    let head = [words(&["figure"]), words(&[&first.name, &second.name, "change"])].concat();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: String, values: (Option<f64>, Option<f64>)| {
        let text = |value: Option<f64>| value.map_or_else(|| "–".into(), format_duration);
        let change = match values {
            (Some(a), Some(b)) if a > 0.0 => change(a, b),
            _ => "–".into(),
        };
        rows.push(vec![name, text(values.0), text(values.1), change]);
    };
    for (who, name) in
        [(Who::None, "max wakeup latency"), (Who::Kernel, "max wakeup latency, kernel recorded")]
    {
        add(name.into(), (first.max_wakeup_latency_ns(who), second.max_wakeup_latency_ns(who)));
    }
    for who in Who::ALL {
        for measure in [MEASURES[0], MEASURES[4], MEASURES[6]] {
            let value = |document| {
                figures::of(document, who).map(|loops| figures::spread(loops, UNDISTURBED, measure).median)
            };
            let values = (value(first), value(second));
            if values != (None, None) {
                add(format!("{}: {} of undisturbed gaps", swatched(who), escape(measure.0)), values);
            }
        }
    }
    format!("<h2>Side by side</h2>\n{}", table("", &head, &rows))
}

/// Relative change below which a difference is noise and gets no colour.
const NOISE: f64 = 0.1;

fn change(a: f64, b: f64) -> String {
    let part = b / a - 1.0;
    let class = match part {
        part if part > NOISE => "bad",
        part if part < -NOISE => "good",
        _ => "soft",
    };
    let words = if b / a >= 2.0 { format!("× {:.1}", b / a) } else { format!("{:+.0} %", part * 100.0) };
    format!("<td class=\"{class}\">{words}</td>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(change(100.0, 105.0), "<td class=\"soft\">+5 %</td>");
        assert_eq!(change(100.0, 50.0), "<td class=\"good\">-50 %</td>");
        assert_eq!(change(100.0, 250.0), "<td class=\"bad\">× 2.5</td>");
    }

    #[test]
    fn cells_with_a_class_keep_it() {
        let table = table("x", &words(&["a<"]), &[vec!["1".into(), "<td class=\"bad\">2</td>".into()]]);
        assert!(
            table.contains("<th>a&lt;</th>") && table.contains("<td>1</td><td class=\"bad\">2</td>"),
            "{table}"
        );
    }

    #[test]
    fn a_single_run_has_no_range() {
        assert_eq!(range(Spread::of(vec![20.0])), "20.0 ns");
        assert!(range(Spread::of(vec![20.0, 30.0])).contains("20.0 ns–30.0 ns"));
        assert_eq!(capital("under"), "Under");
    }
}
