//! Check of the layers' rules: which crate may see which, where `unsafe` may stand, how long files
//! and crates are.
//!
//! Edges of dev-dependencies are free: what a test needs is no part of the product.

mod crate_size;
mod rules;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use rules::{
    AGENT, AGENT_SEES, AGENT_TAKES, ALONE, EXTERNAL_ONLY_IN, LAYERS, MAX_LINES, PREFIX, PROGRAMS, READ_SIDE,
    RING, SAME_LAYER, UNSAFE_IN,
};
use tompion_tasks::workspace::{Crate, Workspace};

/// Checks everything and names each break.
pub fn command(workspace: &Workspace) -> Result<()> {
    let mut breaks = Vec::new();
    for krate in &workspace.crates {
        breaks.extend(broken_edges(krate));
        breaks.extend(missing_forbid(krate)?);
    }
    breaks.extend(stale_rules(&workspace.crates));
    breaks.extend(missing_places(workspace));
    breaks.extend(long_files(&workspace.root)?);
    breaks.extend(crate_size::large_crates(&workspace.crates)?);
    breaks.extend(words::breaks(&workspace.root)?);
    if breaks.is_empty() {
        println!("layers: {} crates keep the rules", workspace.crates.len());
        return Ok(());
    }
    bail!("{} rules broken (ARCHITECTURE.md tells why they are)\n  {}", breaks.len(), breaks.join("\n  "));
}

/// A crate's name without the prefix that all share.
fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// The number of a crate's layer, 0 at the bottom.
fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.crates.contains(&name))
}

/// Names the forbidden dependencies of the crates that this one depends on.
fn broken_edges(krate: &Crate) -> Vec<String> {
    let from = short(&krate.name);
    let Some(from_layer) = layer(from) else {
        return vec![format!("{from}: is on no layer; give it one in xtask/src/layers/rules.rs")];
    };
    krate.dependencies.iter().filter_map(|name| broken_edge(from, from_layer, name)).collect()
}

fn broken_edge(from: &str, from_layer: usize, dependency: &str) -> Option<String> {
    let to = short(dependency);
    if ALONE.contains(&from) {
        return Some(format!(
            "{from} → {dependency}: {from} is linked into everybody's programs and depends on nothing"
        ));
    }
    if let Some(rule) = EXTERNAL_ONLY_IN.iter().find(|rule| rule.package == dependency) {
        let allowed = rule.crates.contains(&from);
        return (!allowed).then(|| format!("{from} → {dependency}: {}", rule.reason));
    }
    let Some(to_layer) = layer(to) else {
        let taken = AGENT_TAKES.iter().any(|(package, _)| *package == dependency);
        let foreign_to_agent = from == AGENT && !dependency.starts_with(PREFIX) && !taken;
        return foreign_to_agent.then(|| {
            format!("{from} → {dependency}: the agent lives in other people's processes; no dependency without a reason")
        });
    };
    if from == AGENT && !AGENT_SEES.contains(&to) {
        return Some(format!("{from} → {to}: the agent sees only {}", AGENT_SEES.join(", ")));
    }
    if READ_SIDE.contains(&from) && to == RING {
        return Some(format!("{from} → {to}: the read side sees traces, never rings"));
    }
    if PROGRAMS.contains(&from) && PROGRAMS.contains(&to) {
        return Some(format!("{from} → {to}: programs never depend on each other"));
    }
    if to_layer > from_layer {
        let (below, above) = (LAYERS[from_layer].name, LAYERS[to_layer].name);
        return Some(format!("{from} → {to}: {below} must not know {above}"));
    }
    let listed = SAME_LAYER.iter().any(|edge| edge.from == from && edge.to == to);
    (to_layer == from_layer && !listed)
        .then(|| format!("{from} → {to}: same layer; not on the list of edges with a reason"))
}

/// Edges on the list of exceptions that no crate has any more.
fn stale_rules(crates: &[Crate]) -> Vec<String> {
    let exists = |from: &str, to: &str| {
        crates
            .iter()
            .find(|krate| short(&krate.name) == from)
            .is_none_or(|krate| krate.dependencies.iter().any(|dependency| short(dependency) == to))
    };
    SAME_LAYER
        .iter()
        .filter(|edge| !exists(edge.from, edge.to))
        .map(|edge| format!("{} → {}: on the list of edges, but gone ({})", edge.from, edge.to, edge.reason))
        .collect()
}

/// Crates and folders that the rules name and that do not exist.
fn missing_places(workspace: &Workspace) -> Vec<String> {
    let exists = |name: &str| workspace.crates.iter().any(|krate| short(&krate.name) == name);
    let listed = LAYERS.iter().flat_map(|layer| layer.crates);
    let crates = listed.filter(|name| !exists(name)).map(|name| format!("{name}: on a layer, but gone"));
    let folders = rules::SOURCE_FOLDERS.iter().filter(|folder| !workspace.root.join(folder).is_dir());
    crates.chain(folders.map(|folder| format!("{folder}: a source folder, but gone"))).collect()
}

/// Root files that must forbid `unsafe` and do not.
fn missing_forbid(krate: &Crate) -> Result<Vec<String>> {
    let name = short(&krate.name);
    if UNSAFE_IN.contains(&name) {
        return Ok(Vec::new());
    }
    let mut breaks = Vec::new();
    for root in &krate.roots {
        let text = fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
        if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
            let file = root.strip_prefix(&krate.folder).unwrap_or(root).display();
            breaks.push(format!("{name}: {file} lacks #![forbid(unsafe_code)]"));
        }
    }
    Ok(breaks)
}

/// Source files above the limit.
fn long_files(root: &Path) -> Result<Vec<String>> {
    let mut breaks = Vec::new();
    for file in source_files(root)? {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let name = file.strip_prefix(root).unwrap_or(&file).display();
            breaks.push(format!("{name}: {lines} lines; at most {MAX_LINES}, tables apart from code"));
        }
    }
    Ok(breaks)
}

fn source_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> =
        rules::SOURCE_FOLDERS.iter().map(|folder| root.join(folder)).filter(|path| path.is_dir()).collect();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && !hidden && !rules::NOT_OURS.contains(&&*entry.file_name().to_string_lossy()) {
                folders.push(path);
            } else if kind.is_file() && is_source(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_source(path: &Path) -> bool {
    path.extension().and_then(|ext| ext.to_str()).is_some_and(|ext| rules::SOURCE_ENDINGS.contains(&ext))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(name: &str, dependencies: &[&str]) -> Crate {
        let dependencies = dependencies.iter().map(ToString::to_string).collect();
        Crate { name: name.into(), folder: PathBuf::new(), roots: Vec::new(), dependencies }
    }

    #[test]
    fn arrows_point_down() {
        assert!(broken_edges(&krate("tompion-ring", &["tompion-layout"])).is_empty());
        assert!(broken_edges(&krate("tompion-cli", &["tompion-session", "clap"])).is_empty());
        assert!(broken_edges(&krate("tompion-layout", &["tompion-ring"]))[0].contains("must not know"));
    }

    #[test]
    fn same_layer_needs_a_reason() {
        assert!(broken_edges(&krate("tompion-layout", &["tompion-filter"]))[0].contains("same layer"));
        let listed = &SAME_LAYER[0];
        assert!(broken_edges(&krate(listed.from, &[listed.to])).is_empty());
    }

    #[test]
    fn the_agent_sees_little() {
        assert!(broken_edges(&krate("tompion-agent", &["tompion-ring", "dlmalloc"])).is_empty());
        assert!(broken_edges(&krate("tompion-agent", &["tompion-ctf"]))[0].contains("sees only"));
        assert!(broken_edges(&krate("tompion-agent", &["tokio"]))[0].contains("no dependency"));
    }

    #[test]
    fn what_everybody_links_depends_on_nothing() {
        for name in ALONE {
            assert!(broken_edges(&krate(name, &["libc"]))[0].contains("depends on nothing"));
        }
    }

    #[test]
    fn the_read_side_never_sees_rings() {
        for reader in READ_SIDE {
            assert!(broken_edges(&krate(reader, &["tompion-ring"]))[0].contains("never rings"));
        }
    }

    #[test]
    fn programs_stand_alone_and_strangers_are_named() {
        assert!(broken_edges(&krate("tompion-cli", &["xtask"]))[0].contains("each other"));
        assert!(broken_edges(&krate("tompion-utils", &[]))[0].contains("no layer"));
        assert!(broken_edges(&krate("tompion-reader", &["libc"]))[0].contains("libc"));
    }

    #[test]
    fn unused_exceptions_are_named() {
        let edge = &SAME_LAYER[0];
        assert!(stale_rules(&[]).is_empty());
        assert_eq!(stale_rules(&[krate(edge.from, &[])]).len(), 1);
    }
}
