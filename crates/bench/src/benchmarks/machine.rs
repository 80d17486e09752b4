//! Description of the machine for readers of a result: its kind, not its name.

use std::fs;
use std::process::Command;

use anyhow::Result;

use tompion_tasks::shell;

/// Today, as in a file's name: `2026-01-31`.
pub fn date() -> Result<String> {
    Ok(shell::capture(Command::new("date").args(["-u", "+%Y-%m-%d"]))?.trim().to_owned())
}

/// Lines of a Markdown list.
pub fn description() -> Result<String> {
    let mut lines = vec![
        format!("- date: {}", date()?),
        format!("- CPU: {}, {} in use", cpu_model(), std::thread::available_parallelism()?),
        format!("- virtual machine: {}", if is_virtual() { "yes" } else { "no" }),
        format!("- kernel: {}", kernel()),
        format!(
            "- clock source: {}",
            read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        ),
        format!("- C compiler: {}", first_line(shell::c_compiler().arg("--version"))),
        format!("- Rust: {}", first_line(Command::new("rustc").arg("--version"))),
    ];
    if shell::exists("lttng") {
        lines.push(format!("- LTTng: {}", first_line(Command::new("lttng").arg("--version"))));
    }
    Ok(lines.join("\n") + "\n")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn cpu_info(key: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn cpu_model() -> String {
    let name = cpu_info("model name").unwrap_or_else(|| "unknown".into());
    match (cpu_info("cpu family"), cpu_info("model\t")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name,
    }
}

fn is_virtual() -> bool {
    cpu_info("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

/// The kernel's version without what its builder appended.
fn kernel() -> String {
    let release = read("/proc/sys/kernel/osrelease");
    let version = release.split('-').next().unwrap_or_default();
    let preempt = read("/proc/sys/kernel/version");
    let model = preempt.split(' ').find(|word| word.starts_with("PREEMPT")).unwrap_or("");
    format!("{version} {model}").trim().to_owned()
}

fn first_line(command: &mut Command) -> String {
    let text = shell::capture(command).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
