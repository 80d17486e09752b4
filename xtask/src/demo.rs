//! `x demo`: records a real program and shows what it did.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use tompion_plot::with_thousands;
use tompion_tasks::artifacts::{self, Profile};
use tompion_tasks::shell;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// The program that is recorded: the one of the 2009 paper.
const PROGRAM: [&str; 4] = ["find", "/usr", "-regex", ".*a"];
/// The events of the C library's allocations.
const ALLOCATIONS: &str = "lttng_ust_libc:*";
/// Sizes that the report lists.
const TOP: usize = 10;

/// `x demo [-o DIR]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let folder = parse(arguments)?;
    eprintln!("Building (a minute or two the first time)…");
    artifacts::build(workspace, Profile::Release)?;
    let tompion = Profile::Release.folder(workspace).join("tompion");
    let start = workspace.start_folder();
    let run = |words: &[&str]| {
        let mut command = Command::new(&tompion);
        command.args(words).arg(&folder).current_dir(&start);
        command
    };

    let kernel = may_record_kernel(&tompion);
    let beside = if kernel { ", and the kernel" } else { "" };
    eprintln!("\nRecording every allocation of: {}{beside}\n", PROGRAM.join(" "));
    let mut options = vec!["record", "--preload", "malloc", "--subbuf-size", "1M"];
    options.extend(kernel.then_some("-k"));
    options.push("-o");
    let mut record = run(&options);
    shell::run(record.arg("--").args(PROGRAM).stdout(Stdio::null()))?;
    println!("\nWhat was recorded\n");
    shell::run(&mut run(&["stat"]))?;
    println!("\nThe sizes most asked for\n");
    let sizes = allocation_sizes(&mut run(&["print", "--format", "json", "-e", ALLOCATIONS]))?;
    ensure!(!sizes.is_empty(), "the trace holds no allocation");
    print!("{}", top_sizes(&sizes).text());
    picture(&tompion, &start, &folder);
    next_steps(tompion.strip_prefix(&start).unwrap_or(&tompion), &folder, kernel);
    Ok(())
}

/// The picture of the trace, beside it, opened where there is a screen. It takes Chromium; without
/// it the demo goes on, and what the viewer says of that is the reader's.
fn picture(tompion: &Path, start: &Path, folder: &Path) {
    let mut file = start.join(folder).into_os_string();
    file.push(".png");
    println!("\nThe picture\n");
    let mut view = Command::new(tompion);
    view.args(["view", "--no-open", "--png"]).arg(&file).arg(start.join(folder));
    if !shell::limited(180, &view).status().is_ok_and(|status| status.success()) {
        return;
    }
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()));
    if has_screen && shell::exists("xdg-open") {
        let mut open = Command::new("xdg-open");
        open.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Whether a picture is shown is no matter of success.
        let _ = open.status();
    }
}

/// `x demo-report`: the table of sizes from `tompion print --format json` on standard input.
pub fn report_command() -> Result<()> {
    print!("{}", top_sizes(&count_sizes(stdin())?).text());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<PathBuf> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let time = shell::capture(Command::new("date").arg("+%Y%m%d-%H%M%S"))?;
            Ok(format!("tompion-find-{}", time.trim()).into())
        }
        ["-o", folder] => Ok(folder.into()),
        _ => bail!("usage: ./x demo [-o DIR]"),
    }
}

/// Whether `tompion doctor` finds nothing in the way of the kernel's events.
fn may_record_kernel(tompion: &Path) -> bool {
    let checks = Command::new(tompion).args(["doctor", "--json"]).stderr(Stdio::null()).output();
    let checks = checks.ok().and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    let is_good = |check: &Value| check["name"] == "kernel events" && check["state"] == "good";
    checks.is_some_and(|checks| checks.as_array().is_some_and(|checks| checks.iter().any(is_good)))
}

/// Sizes from a command that prints events as JSON. Its warnings of losses are left out: the
/// summary has told of them.
fn allocation_sizes(print: &mut Command) -> Result<HashMap<u64, u64>> {
    let child = print.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.with_context(|| format!("cannot run `{}`", shell::describe(print)))?;
    let sizes = count_sizes(child.stdout.take().context("its output is piped")?)?;
    let status = child.wait()?;
    ensure!(status.success(), "`{}` failed: {status}", shell::describe(print));
    Ok(sizes)
}

/// Number of requests of each size, from one JSON object a line.
fn count_sizes(input: impl Read) -> Result<HashMap<u64, u64>> {
    let mut sizes = HashMap::new();
    for (index, line) in BufReader::new(input).lines().enumerate() {
        let event: Value =
            serde_json::from_str(&line?).with_context(|| format!("line {} is no JSON", index + 1))?;
        let fields = &event["fields"];
        if let Some(size) = fields["size"].as_u64() {
            // calloc asks for `nmemb` elements of this size.
            let elements = fields["nmemb"].as_u64().unwrap_or(1);
            *sizes.entry(size.saturating_mul(elements)).or_default() += 1;
        }
    }
    Ok(sizes)
}

fn top_sizes(sizes: &HashMap<u64, u64>) -> Table {
    let mut ranked: Vec<(u64, u64)> = sizes.iter().map(|(&size, &count)| (size, count)).collect();
    ranked.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
    let total: u64 = sizes.values().sum();
    let mut table = Table::new(&["bytes", "allocations", "share"]);
    for &(size, count) in ranked.iter().take(TOP) {
        let share = format!("{:.1} %", count as f64 * 100.0 / total as f64);
        table.row(vec![with_thousands(size), with_thousands(count), share]);
    }
    let rest = ranked.len().saturating_sub(TOP);
    if rest > 0 {
        let count: u64 = ranked.iter().skip(TOP).map(|(_, count)| count).sum();
        let share = format!("{:.1} %", count as f64 * 100.0 / total as f64);
        table.row(vec![format!("{rest} other sizes"), with_thousands(count), share]);
    }
    table
}

fn next_steps(tompion: &Path, folder: &Path, kernel: bool) {
    let (tompion, folder) = (tompion.display(), folder.display());
    println!("\nNext\n\n  {tompion} view {folder}\n  {tompion} print {folder} | less");
    if shell::exists("babeltrace2") {
        println!("  babeltrace2 {folder} | less");
    }
    if kernel {
        println!("  {tompion} print -e 'sched_*' -e 'syscall_*' {folder} | less");
        return println!("  {tompion} record --preload malloc -k -- YOUR-PROGRAM");
    }
    println!("  {tompion} record --preload malloc -- YOUR-PROGRAM");
    println!("  sudo {tompion} record -k -- YOUR-PROGRAM    # with the kernel");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"name":"malloc","fields":{"size":16,"ptr":1}}
{"name":"free","fields":{"ptr":1}}
{"name":"malloc","fields":{"size":16,"ptr":2}}
{"name":"calloc","fields":{"nmemb":2,"size":2048,"ptr":3}}
"#;

    #[test]
    fn sizes_are_counted_and_ranked() {
        let sizes = count_sizes(LINES.as_bytes()).unwrap();
        assert_eq!(sizes, HashMap::from([(16, 2), (4096, 1)]));
        assert_eq!(
            top_sizes(&sizes).text(),
            "  bytes  allocations   share\n  16               2  66.7 %\n  4,096            1  33.3 %\n"
        );
    }

    #[test]
    fn a_line_that_is_no_json_is_named() {
        assert!(count_sizes("{}\nx\n".as_bytes()).unwrap_err().to_string().contains("line 2"));
    }
}
