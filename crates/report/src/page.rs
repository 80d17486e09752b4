//! Page of a report: a verdict for a quick decision, then the figures behind it.

use tompion_rttest::accumulator::Summary;

use crate::{
    document::{Document, State},
    figures::{self, ALL, GapChoice, MEASURES, UNDISTURBED},
    format::{format_duration, with_thousands},
    html::{escape, figure},
    plot::{Line, Plot, Row, Vertical, dots},
    tables,
    verdict::{self, Grade, Verdict},
};

/// Returns the page of a report.
pub fn of_report(document: &Document) -> String {
    let title = format!("Real-time report: {}", document.name);
    let sections = [
        head(&title, document),
        verdict_of(&verdict::judge(document)),
        notes(document),
        wake_ups(&[document]),
        recording(&[document]),
        tables::preemption(document),
        tables::hardware(document),
        tables::settings(document),
        tables::machine(&[document]),
        method(document),
    ];
    crate::html::document(&title, &sections.concat())
}

/// Returns the page that compares two reports.
pub fn of_comparison(first: &Document, second: &Document) -> String {
    let title = format!("Real-time reports: {} and {}", first.name, second.name);
    let both = [first, second];
    let verdicts = both.map(|document| {
        let verdict = verdict::judge(document);
        format!("<h3>{}</h3>\n{}", escape(&document.name), banner(&verdict))
    });
    let sections = [
        format!("<h1>{}</h1>\n", escape(&title)),
        format!("<p class=\"soft\">Made {} and {}.</p>\n", escape(&first.made), escape(&second.made)),
        verdicts.concat(),
        tables::comparison(first, second),
        wake_ups(&both),
        recording(&both),
        tables::machine(&both),
    ];
    crate::html::document(&title, &sections.concat())
}

fn head(title: &str, document: &Document) -> String {
    let fact =
        |name: &str| document.machine.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str());
    let machine: Vec<&str> = ["processor", "kernel", "distribution"].into_iter().filter_map(fact).collect();
    let load = tables::describe_load(document);
    format!(
        "<h1>{}</h1>\n<p class=\"soft\">{}<br>{}, in {:.0} minutes, {load}. Tompion {}.</p>\n",
        escape(title),
        escape(&machine.join(" · ")),
        escape(&document.made),
        (document.took_s / 60.0).max(1.0),
        escape(&document.tompion)
    )
}

fn class(grade: Grade) -> (&'static str, &'static str) {
    match grade {
        Grade::Good => ("good", "✓ good"),
        Grade::Marginal => ("marginal", "△ marginal"),
        Grade::Bad => ("bad", "✗ bad"),
    }
}

fn banner(verdict: &Verdict) -> String {
    let (class, _) = class(verdict.grade);
    format!(
        "<div class=\"verdict {class}\"><div class=\"words\">{}</div><p>{}</p></div>\n",
        verdict.words(),
        escape(&verdict.headline)
    )
}

fn verdict_of(verdict: &Verdict) -> String {
    let points = verdict.points.iter().map(|point| {
        let (class, words) = class(point.grade);
        format!(
            "<div class=\"point {class}\"><div class=\"what\"><span>{}</span><span class=\"grade\">{words}</span></div>\
             <div class=\"figure\">{}</div><div class=\"meaning\">{}</div></div>\n",
            escape(point.what),
            escape(&point.figure),
            escape(&point.meaning)
        )
    });
    format!("{}<div class=\"points\">\n{}</div>\n", banner(verdict), points.collect::<String>())
}

/// Notes on what limits the figures.
fn notes(document: &Document) -> String {
    let mut notes = Vec::new();
    if document.is_virtual() {
        notes.push(
            "<b>This machine is virtual.</b> The hypervisor may stop its CPUs for microseconds or milliseconds. Gaps \
             that the kernel attributes to it are listed separately (“steal”). The cost of recording is valid here; \
             latencies differ on real hardware."
                .to_owned(),
        );
    }
    let limitations = tables::limitations(document);
    if !limitations.is_empty() {
        let lines: String = limitations.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
        notes.push(format!("<b>What could not be measured</b><ul>{lines}</ul>"));
    }
    notes.iter().map(|note| format!("<div class=\"note\">{note}</div>\n")).collect()
}

/// Returns a name, after that of its report if there are two.
fn named(documents: &[&Document], index: usize, name: &str) -> String {
    match documents {
        [_] => name.to_owned(),
        _ => format!("{}: {name}", documents.get(index).map_or("", |document| &document.name)),
    }
}

fn wake_ups(documents: &[&Document]) -> String {
    let mut lines = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        for wakeups in &document.results.cyclic {
            let summaries = wakeups.outcome.cpus.iter().map(|measured| &measured.late);
            lines.push(Line {
                label: named(documents, index, wakeups.recorder.name()),
                colour: tables::colour(wakeups.recorder),
                is_second: index == 1,
                points: figures::histogram(summaries),
            });
        }
    }
    let limit = documents.first().map(|document| document.limit_ns as f64);
    let plot = Plot {
        title: "Wakeup latency",
        horizontal: "wakeup latency",
        vertical: Vertical::Count,
        lines: &lines,
        limit: limit.map(|limit| (limit, "limit")),
    };
    format!(
        "<h2>Wakeup latency</h2>\n<p>A real-time thread on each CPU sleeps until a time and measures how much later it \
         runs. A control loop has at least this jitter.</p>\n{}{}",
        figure(&plot.draw(), "Number of wakeups by latency, of all CPUs; both axes are logarithmic."),
        documents.iter().map(|document| tables::wake_ups(document, documents.len() > 1)).collect::<String>()
    )
}

fn recording(documents: &[&Document]) -> String {
    let mut rows = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        for loops in document.results.npt.iter().filter(|loops| !loops.runs.is_empty()) {
            let measures = [MEASURES[0], MEASURES[4], MEASURES[6]];
            rows.push(Row {
                label: named(documents, index, loops.recorder.name()),
                colour: tables::colour(loops.recorder),
                is_second: index == 1,
                dots: measures.map(|measure| figures::spread(loops, UNDISTURBED, measure)).into(),
            });
        }
    }
    let names = ["mean", "99.99 %", "max"];
    let drawn = dots("Gaps in the loop with each recorder", &names, &rows);
    let curves = |title: &str, choice: GapChoice| {
        let lines = curves(documents, choice);
        let horizontal = "length of a gap";
        Plot { title, horizontal, vertical: Vertical::Share, lines: &lines, limit: None }.draw()
    };
    format!(
        "<h2>Cost of recording for a real-time program</h2>\n<p>A loop under SCHED_FIFO reads the CPU's counter, records an \
         event, and reads the counter again. The gap between both readings is what an event can delay the program by. The \
         difference to “nothing recorded” is the cost of the recorder.</p>\n{}{}{}{}",
        figure(
            &drawn,
            "Without gaps that the machine lengthened (interrupts, other threads, the hypervisor). Marks are medians of the \
             rounds, whiskers their range."
        ),
        figure(
            &curves("Gaps that the machine did not lengthen", UNDISTURBED),
            "Share of gaps that are at least as long, of all rounds, without those that the machine lengthened. Lower and \
             further left is better."
        ),
        figure(&curves("All gaps", ALL), "All gaps: the delays of a program on this machine."),
        documents.iter().map(|document| tables::gaps(document, documents.len() > 1)).collect::<String>()
    )
}

fn curves(documents: &[&Document], choice: GapChoice) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        for loops in document.results.npt.iter().filter(|loops| !loops.runs.is_empty()) {
            let summaries: Vec<&Summary> = loops.runs.iter().map(choice).collect();
            lines.push(Line {
                label: named(documents, index, loops.recorder.name()),
                colour: tables::colour(loops.recorder),
                is_second: index == 1,
                points: figures::curve(summaries.into_iter()),
            });
        }
    }
    lines
}

fn method(document: &Document) -> String {
    let results = &document.results;
    let rounds = results.npt.iter().map(|loops| loops.runs.len()).max().unwrap_or(0);
    let loops = results.npt.iter().flat_map(|loops| &loops.runs).map(|run| run.loops).max().unwrap_or(0);
    let settings = document.settings.iter().filter(|setting| setting.state != State::Good).count();
    format!(
        "<h2>How it was measured</h2>\n<ul>\n<li>{} during all tests.</li>\n\
         <li>Wakeup latency: <code>clock_nanosleep</code> every {} on each CPU, SCHED_FIFO; without recording, and with \
         the kernel recorded (<code>record -k</code>).</li>\n\
         <li>The loop: {rounds} rounds in which recorders alternate, {} iterations each, {} per second, memory locked, readings \
         between fences, accounting outside the gaps. Percentiles are exact to a thousandth.</li>\n\
         <li>A trace is complete if it has as many events as there were iterations, and reports no loss.</li>\n\
         <li>Hardware gaps: a thread on each CPU reads the counter for 80 ms of each 100 ms.</li>\n\
         <li>{settings} of {} settings are not ideal for real-time programs.</li>\n</ul>\n\
         <p class=\"soft\">Repeat: <code>tompion test report</code>. Single tests: <code>tompion test npt</code>, \
         <code>cyclic</code>, <code>preempt</code>, <code>hwgap</code>; settings: <code>tompion doctor --rt</code>.</p>\n",
        tables::capital(&tables::describe_load(document)),
        format_duration(results.interval_ns as f64),
        with_thousands(loops),
        with_thousands(results.rate as u64),
        document.settings.len()
    )
}
