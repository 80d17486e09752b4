//! The links of the documentation, checked: a relative link names a file and a heading that exist,
//! and so does inline code such as `ring/src/lib.rs`. Addresses on the net are not checked.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use tompion_tasks::workspace::Workspace;

/// Folders whose documents are not ours.
const NOT_OURS: [&str; 2] = ["target", "node_modules"];

/// Checks all documents below the workspace's root and names each broken link.
pub fn command(workspace: &Workspace) -> Result<()> {
    let documents = documents(&workspace.root)?;
    let broken = broken_links(&workspace.root, &documents)?;
    if broken.is_empty() {
        println!("links: {} documents checked", documents.len());
        return Ok(());
    }
    bail!("broken links: {}\n  {}", broken.len(), broken.join("\n  "));
}

/// Returns all Markdown files below the root, in order.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind, name) = (entry.path(), entry.file_type()?, entry.file_name());
            let name = name.to_string_lossy();
            let ours = !name.starts_with('.') && !NOT_OURS.contains(&&*name);
            if kind.is_dir() && ours {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn broken_links(root: &Path, documents: &[PathBuf]) -> Result<Vec<String>> {
    let mut anchors_of = HashMap::new();
    let mut broken = Vec::new();
    for document in documents {
        let text = read(document)?;
        let name = document.strip_prefix(root).unwrap_or(document).display();
        let missing = source_paths(&text).into_iter().filter(|path| !is_source_path(root, path));
        broken.extend(missing.map(|path| format!("{name}: `{path}`: there is no such file")));
        for target in relative_targets(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => document.clone(),
                path => document.parent().unwrap_or(root).join(path),
            };
            if !file.exists() {
                broken.push(format!("{name}: {target}: there is no such file"));
                continue;
            }
            if anchor.is_empty() || file.extension().is_none_or(|ending| ending != "md") {
                continue;
            }
            let file = fs::canonicalize(&file).with_context(|| format!("cannot find {}", file.display()))?;
            if !anchors_of.contains_key(&file) {
                let anchors = anchors(&read(&file)?);
                anchors_of.insert(file.clone(), anchors);
            }
            if !anchors_of[&file].iter().any(|known| known == anchor) {
                broken.push(format!("{name}: {target}: there is no such heading"));
            }
        }
    }
    Ok(broken)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Targets of a document's links, without web addresses.
fn relative_targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let defined =
        prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).map(|(_, to)| to);
    inline
        .chain(defined)
        .filter_map(|target| target.split_whitespace().next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .map(str::to_owned)
        .collect()
}

/// Returns the source files that a document names in inline code, such as
/// `ring/src/section/mod.rs`.
fn source_paths(text: &str) -> Vec<String> {
    let mut fenced = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    };
    let spans = text.lines().filter(is_prose).flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |span: &&str| {
        span.contains("/src/")
            && span.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.'))
    };
    spans.filter(is_path).map(str::to_owned).collect()
}

/// Whether a path leads to a file or folder from the root, or from `crates/`.
fn is_source_path(root: &Path, path: &str) -> bool {
    ["", "crates"].iter().any(|folder| root.join(folder).join(path).exists())
}

/// A document without its code: in code, brackets are no links.
fn prose(text: &str) -> String {
    let mut paragraphs = String::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            paragraphs.push_str(line);
            paragraphs.push('\n');
        }
    }
    // A span of code may go on in the next line, never in the next paragraph.
    let without_spans = |paragraph: &str| paragraph.split('`').step_by(2).collect::<String>();
    paragraphs.split("\n\n").map(without_spans).collect::<Vec<_>>().join("\n\n")
}

/// The names by which GitHub knows the headings of a document.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let heading = line.trim_start_matches('#');
        let marks = line.len() - heading.len();
        if fenced || !(1..=6).contains(&marks) || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading.trim());
        let same = anchors.iter().filter(|known| **known == name).count();
        anchors.push(if same == 0 { name } else { format!("{name}-{same}") });
    }
    anchors
}

/// The name of a heading: small letters, blanks as hyphens, and nothing else but digits, `-` and
/// `_`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn source_paths_are_found_in_inline_code() {
        let text =
            "See `ring/src/lib.rs` and `cargo run src/x`.\n```\n`a/src/b.rs`\n```\n| `web/src/draw/` |\n";
        assert_eq!(source_paths(text), ["ring/src/lib.rs", "web/src/draw/"]);
    }

    #[test]
    fn links_are_found_where_they_are_links() {
        let text = "See [the `ring`](ring.md#what-it-costs), [there](https://x.org/a.md) and\n\
                    [here](#end).\n\n`[not](a.md)` nor `a\nb](c.md)`.\n\n```c\na[1](b.md);\n```\n\n[r]: other.md\n";
        assert_eq!(relative_targets(text), ["ring.md#what-it-costs", "#end", "other.md"]);
    }

    #[test]
    fn headings_have_the_names_that_github_gives_them() {
        let text = "# What it costs\n```sh\n# no heading\n```\n## `-p PID`, and more\n## What it costs\n#5\n";
        assert_eq!(anchors(text), ["what-it-costs", "-p-pid-and-more", "what-it-costs-1"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = TestDir::new("links");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("README.md"), "[a](docs/a.md#one) [b](docs/b.md) [c](docs/a.md#two)").unwrap();
        fs::write(root.join("docs/a.md"), "# One\n[up](../README.md) [self](#one)").unwrap();
        let broken = broken_links(&root, &documents(&root).unwrap()).unwrap();
        assert_eq!(
            broken,
            [
                "README.md: docs/b.md: there is no such file",
                "README.md: docs/a.md#two: there is no such heading"
            ]
        );
    }
}
