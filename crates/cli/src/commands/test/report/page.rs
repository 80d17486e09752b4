//! The page: one HTML file that needs nothing else, for readers who decide and for those who check.

use tompion_rttest::{accumulator::Summary, campaign::Who};

use super::{
    document::{Document, State},
    figures::{self, ALL, MEASURES, UNDISTURBED, Which},
    plot::{Line, Plot, Row, Vertical, dots},
    tables,
    verdict::{self, Grade, Verdict},
};
use crate::units::format_duration;

const STYLE: &str = include_str!("page.css");

/// A text that is no markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The number of a recorder's colour.
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

/// A page around a body.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

/// The page of a report.
pub fn of(document: &Document) -> String {
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
    page(&title, &sections.concat())
}

/// The page that holds two reports against each other.
pub fn of_two(first: &Document, second: &Document) -> String {
    let title = format!("Real-time reports: {} and {}", first.name, second.name);
    let both = [first, second];
    let verdicts = both.map(|document| {
        let verdict = verdict::judge(document);
        format!("<h3>{}</h3>\n{}", escaped(&document.name), banner(&verdict))
    });
    let sections = [
        format!("<h1>{}</h1>\n", escaped(&title)),
        format!("<p class=\"soft\">Made {} and {}.</p>\n", escaped(&first.made), escaped(&second.made)),
        verdicts.concat(),
        tables::comparison(first, second),
        wake_ups(&both),
        recording(&both),
        tables::machine(&both),
    ];
    page(&title, &sections.concat())
}

fn head(title: &str, document: &Document) -> String {
    let fact =
        |name: &str| document.machine.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str());
    let machine: Vec<&str> = ["processor", "kernel", "distribution"].into_iter().filter_map(fact).collect();
    let load = tables::describe_load(document);
    format!(
        "<h1>{}</h1>\n<p class=\"soft\">{}<br>{}, in {:.0} minutes, {load}. Tompion {}.</p>\n",
        escaped(title),
        escaped(&machine.join(" · ")),
        escaped(&document.made),
        (document.took_s / 60.0).max(1.0),
        escaped(&document.tompion)
    )
}

fn class(grade: Grade) -> (&'static str, &'static str) {
    match grade {
        Grade::Good => ("good", "✓ good"),
        Grade::Doubtful => ("doubtful", "△ look"),
        Grade::Bad => ("bad", "✗ bad"),
    }
}

fn banner(verdict: &Verdict) -> String {
    let (class, _) = class(verdict.grade);
    format!(
        "<div class=\"verdict {class}\"><div class=\"words\">{}</div><p>{}</p></div>\n",
        verdict.words(),
        escaped(&verdict.headline)
    )
}

fn verdict_of(verdict: &Verdict) -> String {
    let points = verdict.points.iter().map(|point| {
        let (class, words) = class(point.grade);
        format!(
            "<div class=\"point {class}\"><div class=\"what\"><span>{}</span><span class=\"grade\">{words}</span></div>\
             <div class=\"figure\">{}</div><div class=\"meaning\">{}</div></div>\n",
            escaped(point.what),
            escaped(&point.figure),
            escaped(&point.meaning)
        )
    });
    format!("{}<div class=\"points\">\n{}</div>\n", banner(verdict), points.collect::<String>())
}

/// What readers must know before they take the figures for more than they are.
fn notes(document: &Document) -> String {
    let mut notes = Vec::new();
    if document.is_virtual() {
        notes.push(
            "<b>This machine is virtual.</b> Its hypervisor stops processors when it likes, for micro- or milliseconds. \
             Where the kernel knows of it, such gaps are told apart (“steal”). What recording adds can be read off here; \
             what the same system does on hardware of its own can't."
                .to_owned(),
        );
    }
    let lacks = tables::lacks(document);
    if !lacks.is_empty() {
        let lines: String = lacks.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        notes.push(format!("<b>What could not be measured</b><ul>{lines}</ul>"));
    }
    notes.iter().map(|note| format!("<div class=\"note\">{note}</div>\n")).collect()
}

/// A name, with that of its report where there are two.
fn named(documents: &[&Document], place: usize, name: &str) -> String {
    match documents {
        [_] => name.to_owned(),
        _ => format!("{}: {name}", documents.get(place).map_or("", |document| &document.name)),
    }
}

fn figure(drawing: &str, caption: &str) -> String {
    format!("<figure>{drawing}<figcaption>{caption}</figcaption></figure>\n")
}

fn wake_ups(documents: &[&Document]) -> String {
    let mut lines = Vec::new();
    for (place, document) in documents.iter().enumerate() {
        for wakeups in &document.results.cyclic {
            let summaries = wakeups.outcome.cpus.iter().map(|measured| &measured.late);
            lines.push(Line {
                label: named(documents, place, wakeups.recorder.name()),
                colour: colour(wakeups.recorder),
                is_second: place == 1,
                points: figures::histogram(summaries),
            });
        }
    }
    let limit = documents.first().map(|document| document.limit_ns as f64);
    let plot = Plot {
        title: "How late threads were woken",
        horizontal: "later than asked for",
        vertical: Vertical::Count,
        lines: &lines,
        limit: limit.map(|limit| (limit, "limit")),
    };
    format!(
        "<h2>How late are threads woken?</h2>\n<p>A real-time thread on each CPU sleeps until a time, and accounts how much \
         later it goes on. A control loop has at least this jitter.</p>\n{}{}",
        figure(&plot.draw(), "Wake-ups by how late they were, all CPUs together; both axes are logarithmic."),
        documents.iter().map(|document| tables::wake_ups(document, documents.len() > 1)).collect::<String>()
    )
}

fn recording(documents: &[&Document]) -> String {
    let mut rows = Vec::new();
    for (place, document) in documents.iter().enumerate() {
        for loops in document.results.npt.iter().filter(|loops| !loops.runs.is_empty()) {
            let measures = [MEASURES[0], MEASURES[4], MEASURES[6]];
            rows.push(Row {
                label: named(documents, place, loops.recorder.name()),
                colour: colour(loops.recorder),
                is_second: place == 1,
                dots: measures.map(|measure| figures::spread(loops, UNDISTURBED, measure)).into(),
            });
        }
    }
    let names = ["mean", "99.99 % are shorter", "longest"];
    let drawn = dots("What a loop takes with each recorder", &names, &rows);
    let curves = |title: &str, which: Which| {
        let lines = curves(documents, which);
        let horizontal = "length of a gap";
        Plot { title, horizontal, vertical: Vertical::Share, lines: &lines, limit: None }.draw()
    };
    format!(
        "<h2>What does recording cost a real-time program?</h2>\n<p>A loop under SCHED_FIFO reads the processor's counter, \
         records an event, and reads the counter again; the gap between both is what an event can delay the program by. \
         Compare with “nothing recorded”: the difference is the recorder's.</p>\n{}{}{}{}",
        figure(
            &drawn,
            "Without the gaps that the machine made longer (interrupts, other threads, the hypervisor), which are left out \
             alike for all. Marks are medians of the rounds, whiskers reach from the least to the most."
        ),
        figure(
            &curves("Gaps that the machine did not make longer", UNDISTURBED),
            "For each length the share of gaps that are at least as long, all rounds together, without those that the \
             machine made longer. Further left and lower is better."
        ),
        figure(&curves("All gaps", ALL), "The same with all gaps: what the program sees on this machine."),
        documents.iter().map(|document| tables::gaps(document, documents.len() > 1)).collect::<String>()
    )
}

fn curves(documents: &[&Document], which: Which) -> Vec<Line> {
    let mut lines = Vec::new();
    for (place, document) in documents.iter().enumerate() {
        for loops in document.results.npt.iter().filter(|loops| !loops.runs.is_empty()) {
            let summaries: Vec<&Summary> = loops.runs.iter().map(which).collect();
            lines.push(Line {
                label: named(documents, place, loops.recorder.name()),
                colour: colour(loops.recorder),
                is_second: place == 1,
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
         <li>Wake-ups: <code>clock_nanosleep</code> every {} on each CPU, SCHED_FIFO; once with nothing recorded, once while \
         Tompion recorded the kernel (<code>record -k</code>).</li>\n\
         <li>The loop: {rounds} rounds in which recorders alternate, {} loops each, {} a second, memory locked, both readings \
         between fences, accounting outside of the gaps. Percentiles are off by a thousandth at most.</li>\n\
         <li>A trace is whole if it holds as many events as there were loops, and tells of no loss.</li>\n\
         <li>Gaps of the hardware: a thread on each CPU at once that reads the counter for 80 ms of each 100 ms.</li>\n\
         <li>{settings} of {} settings are not as real-time programs want them.</li>\n</ul>\n\
         <p class=\"soft\">Again: <code>tompion test report</code>. Each test by itself: <code>tompion test npt</code>, \
         <code>cyclic</code>, <code>preempt</code>, <code>hwgap</code>; the settings: <code>tompion doctor --rt</code>.</p>\n",
        tables::capital(&tables::describe_load(document)),
        format_duration(results.interval_ns as f64),
        crate::messages::with_thousands(loops),
        crate::messages::with_thousands(results.rate as u64),
        document.settings.len()
    )
}
