//! Sizes of crates: how many lines of source each has apart from its tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tompion_tasks::workspace::Crate;

use super::{is_source, rules::MAX_CRATE_LINES, short};

/// Crates above the limit.
pub fn large_crates(crates: &[Crate]) -> Result<Vec<String>> {
    let mut breaks = Vec::new();
    for krate in crates {
        let lines = lines_without_tests(&krate.folder.join("src"))?;
        if lines > MAX_CRATE_LINES {
            breaks.push(format!(
                "{}: {lines} lines without tests; at most {MAX_CRATE_LINES}, then a part becomes a crate of its own",
                short(&krate.name)
            ));
        }
    }
    Ok(breaks)
}

/// Counts the lines of source files below a folder, without unit tests.
fn lines_without_tests(folder: &Path) -> Result<usize> {
    let (mut lines, mut tests) = (Vec::new(), BTreeSet::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if is_source(&path) {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let found = scan(&text);
                tests.extend(found.test_modules.iter().map(|name| submodule(&path, name)));
                lines.push((path, found.lines));
            }
        }
    }
    let is_test = |path: &Path| {
        tests.iter().any(|module| path.starts_with(module) || *path == module.with_extension("rs"))
    };
    Ok(lines.iter().filter(|(path, _)| !is_test(path)).map(|(_, lines)| lines).sum())
}

/// Folder that a file's submodule has, or would have. `name` is its name or its file.
fn submodule(file: &Path, name: &str) -> PathBuf {
    if name.ends_with(".rs") {
        return file.with_file_name(name).with_extension("");
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let parent = file.parent().unwrap_or(Path::new("."));
    match stem {
        "mod" | "lib" | "main" => parent.join(name),
        _ => parent.join(stem).join(name),
    }
}

/// Content of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileLines {
    /// Number of its lines without items that only tests have.
    lines: usize,
    /// Modules in other files that only tests have: their names, or their files where a `path`
    /// attribute gives them.
    test_modules: Vec<String>,
}

/// Counts lines. As rustfmt writes it, an item ends with `;`, or with a brace as far to the right
/// as its first line.
fn scan(text: &str) -> FileLines {
    let mut found = FileLines::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let attribute = line.trim();
        if !(attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test,")) {
            found.lines += 1;
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut path = None;
        let mut first = lines.next().unwrap_or_default();
        while first.trim_start().starts_with("#[") {
            let named = first.trim().strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"));
            path = path.or(named);
            first = lines.next().unwrap_or_default();
        }
        let is_end = |line: &str| {
            let ends = line.ends_with(';') || line.ends_with('}') || line.ends_with(',');
            ends && line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '))
        };
        if let Some(name) = module_elsewhere(first) {
            found.test_modules.push(path.unwrap_or(name).to_owned());
        } else if !is_end(first) {
            lines.by_ref().find(|line| is_end(line));
        }
    }
    found
}

/// Name of the module that a line declares, if the module is in another file.
fn module_elsewhere(line: &str) -> Option<&str> {
    let (visibility, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn items_of_tests_are_not_counted() {
        let text = "//! Module.\n#[cfg(test)]\npub(crate) mod cases;\nfn a() {\n    #[cfg(test)]\n    note();\n}\n#[cfg(test)]\n\
                    #[allow(unused)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n#[cfg(all(test, loom))]\nmod more;\n";
        let expected = FileLines { lines: 4, test_modules: vec!["cases".into(), "more".into()] };
        assert_eq!(scan(text), expected);
    }

    #[test]
    fn files_of_test_modules_are_not_counted() {
        let root = TestDir::new("crate-size");
        fs::create_dir_all(root.join("src/part/cases")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.join("src").join(name), text).unwrap();
        write("lib.rs", "mod part;\n#[cfg(test)]\nmod lib_tests;\n");
        write("lib_tests.rs", &"// test\n".repeat(50));
        write("part.rs", "fn a() {}\n#[cfg(test)]\nmod cases;\n");
        write("part/other.rs", "fn b() {}\n#[cfg(test)]\n#[path = \"other_tests.rs\"]\nmod tests;\n");
        write("part/other_tests.rs", &"// test\n".repeat(50));
        write("part/cases.rs", &"// test\n".repeat(50));
        write("part/cases/more.rs", &"// test\n".repeat(50));
        write("part/program.c", "int a;\n");
        assert_eq!(lines_without_tests(&root.join("src")).unwrap(), 4);
    }

    #[test]
    fn a_crate_above_the_limit_is_named() {
        let root = TestDir::new("crate-limit");
        fs::create_dir_all(root.join("src")).unwrap();
        let breaks = |lines: usize| {
            fs::write(root.join("src/lib.rs"), "// code\n".repeat(lines)).unwrap();
            let (name, folder) = ("tompion-large".into(), root.path().clone());
            large_crates(&[Crate { name, folder, roots: Vec::new(), dependencies: Vec::new() }]).unwrap()
        };
        let (at_limit, above) = (breaks(MAX_CRATE_LINES), breaks(MAX_CRATE_LINES + 1));
        assert!(at_limit.is_empty(), "{at_limit:?}");
        assert!(above[0].starts_with("large: 10001 lines without tests"), "{above:?}");
    }
}
