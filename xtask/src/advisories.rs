//! `x test advisories`: known vulnerabilities of the crates in `Cargo.lock`, by cargo-audit.
//!
//! Part of the full run, which is the scheduled one: what is found depends on the day, not on the
//! change. Without the program, or without its database (a machine that is offline), the step is
//! left out.

use anyhow::{Result, bail};
use serde_json::Value;

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Result of the check.
pub enum Checked {
    /// The check could not be done, for this reason.
    LeftOut(String),
    /// Nothing is known, or what is.
    Done(Result<()>),
}

/// Asks cargo-audit, with a database as new as can be had.
pub fn command(workspace: &Workspace) -> Checked {
    let audit = |words: &[&str]| {
        let mut cargo = shell::cargo();
        cargo.arg("audit").args(words).current_dir(&workspace.root).output()
    };
    if !audit(&["--version"]).is_ok_and(|output| output.status.success()) {
        return Checked::LeftOut("cargo audit is missing (cargo install cargo-audit)".into());
    }
    let mut reason = String::new();
    for words in [&["--json"][..], &["--json", "--no-fetch", "--stale"]] {
        let Ok(output) = audit(words) else { continue };
        if let Some(found) = vulnerabilities(&output.stdout) {
            return Checked::Done(verdict(&found));
        }
        reason = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().trim().to_owned();
    }
    Checked::LeftOut(format!("there is no database of advisories: {reason}"))
}

fn verdict(found: &[String]) -> Result<()> {
    if !found.is_empty() {
        bail!(
            "known vulnerabilities; cargo update, or say in docs/design/dependencies.md why not:\n{}",
            found.join("\n")
        );
    }
    Ok(())
}

/// A line for each vulnerability of a report; none if that is no report.
fn vulnerabilities(report: &[u8]) -> Option<Vec<String>> {
    let report: Value = serde_json::from_slice(report).ok()?;
    let list = report["vulnerabilities"]["list"].as_array()?;
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let line = |found: &Value| {
        let (package, advisory) = (&found["package"], &found["advisory"]);
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        format!("{name} {version}: {} ({})", text(&advisory["title"]), text(&advisory["id"]))
    };
    Some(list.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vulnerabilities_are_reported_and_other_text_is_not() {
        let report = br#"{"vulnerabilities": {"found": true, "count": 1, "list": [{
            "package": {"name": "some", "version": "1.2.3"},
            "advisory": {"id": "RUSTSEC-2026-0001", "title": "reads too far"}}]}, "warnings": {}}"#;
        let found = vulnerabilities(report).unwrap();
        assert_eq!(found, ["some 1.2.3: reads too far (RUSTSEC-2026-0001)"]);
        assert!(verdict(&found).is_err() && verdict(&[]).is_ok());
        assert_eq!(vulnerabilities(br#"{"vulnerabilities": {"found": false, "list": []}}"#), Some(vec![]));
        assert_eq!(vulnerabilities(b""), None);
        assert_eq!(vulnerabilities(b"error: couldn't fetch advisory database"), None);
    }
}
