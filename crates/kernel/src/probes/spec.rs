//! Probe specifications as users write them: `uprobe:/usr/bin/bash:readline(prompt: str)`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{ArgumentType, MAX_ARGUMENTS, Probe, elf};

/// Reason why a probe can't be: what was expected, what was found, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ProbeSpecError {
    /// Problem, in one line.
    pub problem: String,
    /// Existing names, for callers that suggest the nearest one.
    pub suggestions: Option<(String, Vec<String>)>,
}

impl ProbeSpecError {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), suggestions: None }
    }
}

/// A probe as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    pub(super) place: Place,
    /// Whether a function's return is meant.
    pub(super) at_return: bool,
    /// Names and types of its arguments, if they were given.
    pub(super) arguments: Option<Vec<(String, ArgumentType)>>,
}

/// Place where a probe is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A function of a file and bytes behind its beginning, or an address in it. The file as it was
    /// named: [`find_binary`] looks for it.
    File(String, Code),
    /// Marks of a file, whose provider and name match.
    Marks(String, String, String),
    /// A function of the kernel and bytes behind its beginning.
    Kernel(String, u64),
}

/// A program or library, and the name that it was asked for by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binary {
    /// The file, without links on the way.
    pub file: PathBuf,
    /// Provider in its events' names: the name of the link, if a link was named.
    pub provider: String,
}

/// A place in a file's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Function(String, u64),
    Address(u64),
}

/// The kinds of probes, and how they are written.
const KINDS: [(&str, &str); 5] = [
    ("uprobe", "uprobe:BINARY:FUNCTION(NAME: TYPE, …)"),
    ("uretprobe", "uretprobe:BINARY:FUNCTION(NAME: TYPE)"),
    ("usdt", "usdt:BINARY:PROVIDER:NAME"),
    ("kprobe", "kprobe:FUNCTION(NAME: TYPE, …)"),
    ("kretprobe", "kretprobe:FUNCTION(NAME: TYPE)"),
];

/// Whether a kind of probe, with which a text may begin, is one in the kernel.
fn is_of_kernel(kind: &str) -> bool {
    kind.starts_with('k')
}

impl ProbeSpec {
    /// Whether a text asks for a probe, rather than for events by their names.
    pub fn is_one(text: &str) -> bool {
        text.split_once(':').is_some_and(|(kind, _)| KINDS.iter().any(|(name, _)| *name == kind))
    }

    /// Whether a text asks for a probe in a file, rather than in the kernel.
    pub fn names_file(text: &str) -> bool {
        Self::is_one(text) && !is_of_kernel(text)
    }

    /// Returns the probe that a text asks for. Whether there is such a place, [`find`](Self::find)
    /// finds out.
    ///
    /// # Errors
    /// If it isn't written as one.
    pub fn parse(text: &str) -> Result<Self, ProbeSpecError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some((_, form)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            return Err(ProbeSpecError::new(format!("`{kind}` is no kind of probe")));
        };
        let wrong = || ProbeSpecError::new(format!("`{text}` is not of the form {form}"));
        let (place, arguments) = match rest.strip_suffix(')') {
            Some(rest) => {
                let (place, list) = rest.rsplit_once('(').ok_or_else(wrong)?;
                (place, Some(parse_arguments(list)?))
            }
            None => (rest, None),
        };
        let (kernel, at_return) = (is_of_kernel(kind), kind.ends_with("retprobe"));
        let place = if kind == "usdt" {
            let (rest, name) = place.rsplit_once(':').ok_or_else(wrong)?;
            let (binary, provider) = rest.rsplit_once(':').ok_or_else(wrong)?;
            Place::Marks(binary.into(), provider.into(), name.into())
        } else if kernel {
            let (function, offset) =
                parse_function(place).filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
            Place::Kernel(function, offset)
        } else {
            let (binary, code) = place.rsplit_once(':').ok_or_else(wrong)?;
            let code = match code.strip_prefix("0x") {
                Some(digits) => Code::Address(u64::from_str_radix(digits, 16).map_err(|_| wrong())?),
                None => parse_function(code)
                    .map(|(name, offset)| Code::Function(name, offset))
                    .ok_or_else(wrong)?,
            };
            Place::File(binary.into(), code)
        };
        if at_return && arguments.as_ref().is_some_and(|list| list.len() > 1) {
            return Err(ProbeSpecError::new(format!("`{text}`: a function returns one value, (ret: TYPE)")));
        }
        if at_return
            && matches!(
                place,
                Place::File(_, Code::Address(_) | Code::Function(_, 1..)) | Place::Kernel(_, 1..)
            )
        {
            return Err(ProbeSpecError::new(format!("`{text}`: only whole functions return")));
        }
        Ok(Self { place, at_return, arguments })
    }

    /// Finds its probes. Several for a pattern that several marks match.
    ///
    /// # Errors
    /// If there is none, it has other arguments, or the file is missing or can't be read.
    pub fn find(&self) -> Result<Vec<Probe>, ProbeSpecError> {
        elf::find(self)
    }
}

/// `function`, or `function+0x10`.
fn parse_function(text: &str) -> Option<(String, u64)> {
    let Some((name, offset)) = text.split_once('+') else { return Some((text.to_owned(), 0)) };
    let offset = match offset.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => offset.parse().ok()?,
    };
    Some((name.to_owned(), offset))
}

/// `name: type, …`
fn parse_arguments(list: &str) -> Result<Vec<(String, ArgumentType)>, ProbeSpecError> {
    let words = list.split(',').map(str::trim).filter(|_| !list.trim().is_empty());
    let arguments: Vec<_> = words.map(parse_argument).collect::<Result<_, _>>()?;
    if arguments.len() > MAX_ARGUMENTS {
        let count = arguments.len();
        return Err(ProbeSpecError::new(format!("{count} arguments; a probe has at most {MAX_ARGUMENTS}")));
    }
    let mut names = BTreeSet::from(["ip"]);
    match arguments.iter().find(|(name, _)| !names.insert(name)) {
        Some((name, _)) => {
            Err(ProbeSpecError::new(format!("there are two fields `{name}` (`ip` is always there)")))
        }
        None => Ok(arguments),
    }
}

fn parse_argument(text: &str) -> Result<(String, ArgumentType), ProbeSpecError> {
    let (name, ty) = text.split_once(':').unwrap_or((text, ""));
    let (name, ty) = (name.trim(), ty.trim());
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name || name.bytes().next().is_none_or(|byte| byte.is_ascii_digit()) {
        return Err(ProbeSpecError::new(format!(
            "`{text}` is no argument; expected NAME: TYPE, as in `size: u64`"
        )));
    }
    let found = ArgumentType::parse(ty);
    let problem =
        || ProbeSpecError::new(format!("`{ty}` is no type of `{name}`; there are {}", ArgumentType::NAMES));
    Ok((name.to_owned(), found.ok_or_else(problem)?))
}

/// The file of a name, along `PATH` if it has no slash.
pub(super) fn find_binary(name: &str) -> Result<Binary, ProbeSpecError> {
    let on_path = || tompion_os::find_on_path(name.as_ref(), Path::is_file);
    let along_path = || (!name.contains('/')).then(on_path).flatten();
    let here = Some(PathBuf::from(name)).filter(|file| !name.is_empty() && file.is_file());
    let binary = here.or_else(along_path).and_then(|named| {
        let file = std::fs::canonicalize(&named).ok()?;
        // The link of a process to its program has the same name for all.
        let provider = if named.starts_with("/proc") { provider_of(&file) } else { provider_of(&named) };
        Some(Binary { file, provider })
    });
    binary.ok_or_else(|| ProbeSpecError::new(format!("there is no program or library `{name}`")))
}

/// Provider in the names of a file's events.
fn provider_of(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_distinguished_from_patterns() {
        for probe in ["uprobe:sh:main", "kprobe:x", "usdt:", "kretprobe:y"] {
            assert!(ProbeSpec::is_one(probe), "{probe}");
        }
        for pattern in ["sched_*", "kernel:sched_switch", "uprobe", "*"] {
            assert!(!ProbeSpec::is_one(pattern), "{pattern}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let spec = ProbeSpec::parse("uprobe:/bin/sh:main+0x10(argc: i32, argv: x64)").unwrap();
        let Place::File(binary, code) = &spec.place else { panic!("{spec:?}") };
        assert_eq!(binary, "/bin/sh");
        assert_eq!(*code, Code::Function("main".into(), 16));
        let names: Vec<_> = spec.arguments.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["argc", "argv"]);
        let address = ProbeSpec::parse("uprobe:sh:0x1a2b").unwrap();
        assert!(matches!(address.place, Place::File(_, Code::Address(0x1a2b))), "{address:?}");
        let mark = ProbeSpec::parse("usdt:sh:shop:sale").unwrap();
        assert!(
            matches!(mark.place, Place::Marks(_, provider, name) if provider == "shop" && name == "sale")
        );
        assert_eq!(ProbeSpec::parse("kprobe:vfs_read()").unwrap().arguments, Some(Vec::new()));
    }

    #[test]
    fn files_are_looked_for_once_probes_are() {
        let spec = ProbeSpec::parse("uprobe:/nowhere:f").unwrap();
        assert_eq!(spec.find().unwrap_err().problem, "there is no program or library `/nowhere`");
        let binary = find_binary("sh").unwrap();
        assert!(binary.file.is_absolute());
        // On most systems it is a link to another shell.
        assert_eq!(binary.provider, "sh");
    }

    #[test]
    fn malformed_specs_are_reported() {
        let cases = [
            ("uprobe:main", "`uprobe:main` is not of the form uprobe:BINARY:FUNCTION(NAME: TYPE, …)"),
            ("usdt:/bin/sh:x", "`usdt:/bin/sh:x` is not of the form usdt:BINARY:PROVIDER:NAME"),
            ("kprobe:", "`kprobe:` is not of the form kprobe:FUNCTION(NAME: TYPE, …)"),
            ("kprobe:f(a)", "`` is no type of `a`; there are"),
            ("kprobe:f(a: i31)", "`i31` is no type of `a`; there are"),
            ("kprobe:f(a: i32, a: i32)", "there are two fields `a`"),
            ("kprobe:f(ip: i32)", "there are two fields `ip`"),
            ("kprobe:f(1: i32)", "`1: i32` is no argument; expected NAME: TYPE"),
            ("kretprobe:f(a: i32, b: i32)", "a function returns one value"),
            ("kretprobe:f+4", "only whole functions return"),
        ];
        for (text, expected) in cases {
            let problem = ProbeSpec::parse(text).unwrap_err().problem;
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        let many: Vec<String> = (0..13).map(|number| format!("a{number}: u8")).collect();
        let problem = ProbeSpec::parse(&format!("kprobe:f({})", many.join(","))).unwrap_err().problem;
        assert_eq!(problem, "13 arguments; a probe has at most 12");
    }
}
