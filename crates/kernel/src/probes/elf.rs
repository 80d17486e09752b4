//! Lookup of probes' places in files and in the kernel.

use std::{collections::BTreeMap, fs, io::Read as _, path::Path};

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use tompion_protocol::glob;

use super::{
    ArgumentType, MAX_ARGUMENTS, MAX_SITES, Probe, Site, Target, event,
    go::{self, GoFunction},
    nop,
    note::{self, Note},
    spec::{Binary, Code, Place, ProbeSpec, ProbeSpecError, find_binary},
    value::Value,
};

/// Maximum size of a file that is read, in bytes: its owner may have made it as large as it wants.
const MAX_FILE_SIZE: u64 = 1 << 30;
/// Bytes of a symbol's kind in ELF: a function that is chosen when the program starts.
const CHOSEN_AT_START: u8 = 10;

/// A mark of a program, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Provider that put it there.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Types of its arguments, as descriptions show them.
    pub arguments: Vec<String>,
    /// Number of places at which the mark stands.
    pub places: usize,
}

/// The marks (USDT probes) of a file.
///
/// # Errors
/// If it can't be read, or is no program of this machine.
pub fn marks(file: &Path) -> Result<Vec<Mark>, ProbeSpecError> {
    let bytes = read(file)?;
    let groups = group(Elf::parse(file, &bytes)?.notes());
    let mark = |((provider, name), notes): ((String, String), Vec<Note>)| {
        let arguments = types(&notes);
        let arguments = arguments.iter().map(|(name, ty)| format!("{} {name}", ty.ty())).collect();
        Mark { provider, name, arguments, places: notes.len() }
    };
    Ok(groups.into_iter().map(mark).collect())
}

/// Finds the probes of a spec.
pub(super) fn find(spec: &ProbeSpec) -> Result<Vec<Probe>, ProbeSpecError> {
    let probes = match &spec.place {
        Place::Kernel(function, offset) => vec![kernel_function(spec, function, *offset)?],
        Place::File(name, code) => {
            let binary = find_binary(name)?;
            let bytes = read(&binary.file)?;
            vec![function(spec, &binary, code, &Elf::parse(&binary.file, &bytes)?)?]
        }
        Place::Marks(file, provider, name) => {
            let file = find_binary(file)?.file;
            let bytes = read(&file)?;
            find_marks(spec, &file, (provider, name), &Elf::parse(&file, &bytes)?)?
        }
    };
    let sites: usize = probes.iter().map(|probe| probe.sites.len()).sum();
    if sites > MAX_SITES {
        return Err(ProbeSpecError::new(format!("{sites} places; there can be {MAX_SITES} at once")));
    }
    Ok(probes)
}

fn read(file: &Path) -> Result<Vec<u8>, ProbeSpecError> {
    let problem =
        |error: std::io::Error| ProbeSpecError::new(format!("can't read {}: {error}", file.display()));
    let file_of_program = tompion_os::open_regular(file).map_err(problem)?;
    if file_of_program.metadata().map_err(problem)?.len() > MAX_FILE_SIZE {
        return Err(ProbeSpecError::new(format!("{} is too large to be a program", file.display())));
    }
    let mut bytes = Vec::new();
    file_of_program.take(MAX_FILE_SIZE).read_to_end(&mut bytes).map_err(problem)?;
    Ok(bytes)
}

/// A program or library.
struct Elf<'data> {
    path: &'data Path,
    bytes: &'data [u8],
    file: object::File<'data>,
}

impl<'data> Elf<'data> {
    fn parse(path: &'data Path, bytes: &'data [u8]) -> Result<Self, ProbeSpecError> {
        let file = object::File::parse(bytes);
        let file =
            file.map_err(|error| ProbeSpecError::new(format!("{}: no ELF file: {error}", path.display())))?;
        if !file.is_64() || !file.is_little_endian() {
            let problem =
                format!("{}: probes are put into 64-bit programs of this machine alone", path.display());
            return Err(ProbeSpecError::new(problem));
        }
        Ok(Self { path, bytes, file })
    }

    /// Offset in the file of an address of its memory.
    fn offset(&self, address: u64) -> Option<u64> {
        self.file.segments().find_map(|segment| {
            let (begin, size) = segment.file_range();
            let distance = address.checked_sub(segment.address())?;
            (distance < size).then_some(begin + distance)
        })
    }

    fn offset_of_code(&self, address: u64) -> Result<u64, ProbeSpecError> {
        let path = self.path.display();
        self.offset(address).ok_or_else(|| ProbeSpecError::new(format!("{path} has no code at {address:#x}")))
    }

    /// Returns the file offset of a probe's code.
    ///
    /// # Errors
    /// No code is there, or this kernel would damage the program with a probe there.
    fn probe_offset(&self, address: u64) -> Result<u64, ProbeSpecError> {
        let offset = self.offset_of_code(address)?;
        if !self.is_replaced_when_hit(offset) || self.begins_function(address) {
            return Ok(offset);
        }
        let problem = match tompion_os::probes_keep_red_zone() {
            Ok(true) => return Ok(offset),
            Ok(false) => {
                "this kernel overwrites what the function keeps there below its stack pointer".to_owned()
            }
            Err(error) => {
                format!(
                    "whether this kernel leaves alone what the function keeps below its stack pointer is unknown: {error}"
                )
            }
        };
        let path = self.path.display();
        Err(ProbeSpecError::new(format!(
            "{path} has a 5-byte nop at {address:#x}, and {problem}; probe another instruction, or the beginning of the \
             function"
        )))
    }

    /// Returns whether kernels may replace an instruction by a call once a probe there was hit.
    fn is_replaced_when_hit(&self, offset: u64) -> bool {
        let code = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        cfg!(target_arch = "x86_64") && code.is_some_and(nop::is_five_byte_nop)
    }

    /// Returns whether a function begins here, perhaps behind its landing pad. Its red zone is
    /// still unused.
    fn begins_function(&self, address: u64) -> bool {
        const LANDING_PAD: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        let before = address.wrapping_sub(LANDING_PAD.len() as u64);
        let code = self.offset(before).and_then(|offset| self.bytes.get(usize::try_from(offset).ok()?..));
        let has_pad = code.is_some_and(|code| code.starts_with(LANDING_PAD));
        let symbols = self.file.symbols().chain(self.file.dynamic_symbols());
        let mut functions =
            symbols.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        functions.any(|symbol| {
            // Compilers split off parts that are jumped to from the middle of a function.
            let is_part = symbol.name().is_ok_and(|name| name.contains(".cold"));
            !is_part && (symbol.address() == address || has_pad && symbol.address() == before)
        })
    }

    /// The address of a function, by its name in the tables of symbols.
    fn function(&self, name: &str) -> Result<u64, ProbeSpecError> {
        let symbols =
            || self.file.symbols().chain(self.file.dynamic_symbols()).filter(ObjectSymbol::is_definition);
        // Versions stand behind names: `printf@@GLIBC_2.2.5`.
        let is_named = |found: &str| found.split('@').next() == Some(name);
        let found = symbols().find(|symbol| symbol.name().is_ok_and(is_named));
        let path = self.path.display();
        match found {
            Some(symbol) if is_chosen_at_start(&symbol) => Err(ProbeSpecError::new(format!(
                "`{name}` of {path} is chosen when the program starts; name the function that it becomes"
            ))),
            Some(symbol) if symbol.kind() == SymbolKind::Text => Ok(symbol.address()),
            Some(_) => Err(ProbeSpecError::new(format!("`{name}` of {path} is no function"))),
            None => {
                let names = symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
                let names: Vec<String> =
                    names.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect();
                let hint = if names.is_empty() { " (it is stripped: give an address)" } else { "" };
                let problem = format!("{path} has no function `{name}`{hint}");
                Err(ProbeSpecError { problem, suggestions: Some((name.into(), names)) })
            }
        }
    }

    /// Returns the facts about the Go function that has code at an address; `None` for code of
    /// another language.
    fn go_function(&self, address: u64) -> Option<GoFunction> {
        let info = self.file.section_by_name(".go.buildinfo")?.data().ok()?;
        let symbols = self.file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        let mut around = symbols.filter(|symbol| {
            let distance = address.checked_sub(symbol.address());
            distance.is_some_and(|distance| distance < symbol.size().max(1))
        });
        // Without symbols, all code is taken for Go's: at the return from a function of C nothing
        // is lost by refusing.
        let name = around.next().and_then(|symbol| symbol.name().ok().map(str::to_owned));
        GoFunction::new(info, name.as_deref())
    }

    fn notes(&self) -> Vec<Note> {
        let section = |name| self.file.section_by_name(name);
        let Some(Ok(bytes)) = section(".note.stapsdt").map(|section| section.data()) else {
            return Vec::new();
        };
        let base = section(".stapsdt.base").map(|section| section.address());
        let mut notes = note::notes(bytes);
        for note in &mut notes {
            // Tools that moved the file's addresses since (prelink) did not see those in the notes.
            let moved = base.filter(|_| note.base != 0).map_or(0, |base| base.wrapping_sub(note.base));
            note.pc = note.pc.wrapping_add(moved);
            note.semaphore = if note.semaphore == 0 { 0 } else { note.semaphore.wrapping_add(moved) };
        }
        notes
    }
}

fn is_chosen_at_start(symbol: &object::Symbol<'_, '_>) -> bool {
    matches!(symbol.flags(), object::SymbolFlags::Elf { st_info, .. } if st_info & 15 == CHOSEN_AT_START)
}

/// Calling convention, which says where a function finds its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Convention {
    /// C's of this machine.
    C,
    /// Go's, in registers.
    Go,
}

/// Names and types of a function's arguments, or of what it returns.
fn call_arguments(spec: &ProbeSpec) -> Vec<(String, ArgumentType)> {
    let returned = || vec![("ret".to_owned(), ArgumentType::integer(8, true))];
    let default = || if spec.at_return { returned() } else { Vec::new() };
    spec.arguments.clone().unwrap_or_else(default)
}

/// Places of these arguments.
fn call_values(
    spec: &ProbeSpec,
    arguments: &[(String, ArgumentType)],
    convention: Convention,
) -> Result<Vec<Value>, ProbeSpecError> {
    let place = |(number, (name, ty)): (usize, &(String, ArgumentType))| match convention {
        Convention::C if spec.at_return => Ok(Value::of_return(*ty)),
        Convention::C => Ok(Value::of_call(number, *ty)),
        Convention::Go => go::argument(number, name, *ty),
    };
    arguments.iter().enumerate().map(place).collect()
}

/// Place of a probe at a function.
struct FunctionPlace<'a> {
    provider: &'a str,
    name: &'a str,
    target: Target,
    offset: u64,
    convention: Convention,
}

fn probe_at(spec: &ProbeSpec, place: FunctionPlace<'_>) -> Result<Probe, ProbeSpecError> {
    let FunctionPlace { provider, name, target, offset, convention } = place;
    let arguments = call_arguments(spec);
    let values = call_values(spec, &arguments, convention)?;
    let suffix = if spec.at_return { "_return" } else { "" };
    Ok(Probe {
        event: event(provider, &format!("{name}{suffix}"), &arguments),
        arguments: arguments.into_iter().map(|(_, ty)| ty).collect(),
        target,
        at_return: spec.at_return,
        sites: vec![Site { offset, semaphore: 0, values }],
    })
}

fn function(spec: &ProbeSpec, binary: &Binary, code: &Code, elf: &Elf<'_>) -> Result<Probe, ProbeSpecError> {
    let (address, name) = match code {
        Code::Address(address) => (*address, format!("{address:#x}")),
        Code::Function(name, 0) => (elf.function(name)?, name.clone()),
        Code::Function(name, offset) => {
            (elf.function(name)?.wrapping_add(*offset), format!("{name}+{offset:#x}"))
        }
    };
    let offset = elf.probe_offset(address)?;
    let convention = match elf.go_function(address) {
        None => Convention::C,
        Some(_) if spec.at_return => return Err(go::no_return(elf.path, &name)),
        Some(found) => {
            let needs_places = spec.arguments.as_ref().is_some_and(|list| !list.is_empty());
            found.check(elf.path, needs_places)?;
            Convention::Go
        }
    };
    let target = Target::File(binary.file.clone());
    probe_at(spec, FunctionPlace { provider: &binary.provider, name: &name, target, offset, convention })
}

/// A function of the running kernel, whose table of symbols all users may read.
fn kernel_function(spec: &ProbeSpec, name: &str, offset: u64) -> Result<Probe, ProbeSpecError> {
    if !super::attach::has_kprobes() {
        return Err(ProbeSpecError::new(
            "this kernel has no kprobes (CONFIG_KPROBES, /sys/bus/event_source/devices/kprobe); programs can be \
             probed, with uprobe: and usdt:",
        ));
    }
    let table = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let functions = table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().filter(|kind| kind.eq_ignore_ascii_case("t")).and_then(|_| words.next())
    });
    let names: Vec<&str> = functions.collect();
    if !names.is_empty() && !names.contains(&name) {
        let problem = format!("the kernel has no function `{name}`");
        let names = names.into_iter().map(str::to_owned).collect();
        return Err(ProbeSpecError { problem, suggestions: Some((name.into(), names)) });
    }
    let shown = if offset == 0 { name.to_owned() } else { format!("{name}+{offset:#x}") };
    let (target, convention) = (Target::Kernel(name.into()), Convention::C);
    probe_at(spec, FunctionPlace { provider: "", name: &shown, target, offset, convention })
}

/// Notes by the mark that they are of.
fn group(notes: Vec<Note>) -> BTreeMap<(String, String), Vec<Note>> {
    let mut groups = BTreeMap::<_, Vec<Note>>::new();
    for note in notes {
        groups.entry((note.provider.clone(), note.name.clone())).or_default().push(note);
    }
    groups
}

/// The arguments of a mark that can be read in all its places, each as wide as the widest. Called
/// as other tools call them.
fn types(notes: &[Note]) -> Vec<(String, ArgumentType)> {
    readable(notes)
        .map(|(number, size, signed)| (format!("arg{number}"), ArgumentType::integer(size, signed)))
        .collect()
}

/// Number, size and sign of the arguments that can be read.
fn readable(notes: &[Note]) -> impl Iterator<Item = (usize, u8, bool)> + '_ {
    let count = notes.iter().map(|note| note.values.len()).min().unwrap_or(0).min(MAX_ARGUMENTS);
    (0..count).filter_map(|number| {
        let values = notes.iter().map(|note| note.values[number]);
        values.map(|value| value.map(|value| (number, value.size, value.signed))).reduce(|a, b| {
            let (a, b) = (a?, b?);
            Some((number, a.1.max(b.1), a.2 || b.2))
        })?
    })
}

fn find_marks(
    spec: &ProbeSpec,
    file: &Path,
    (provider, name): (&str, &str),
    elf: &Elf<'_>,
) -> Result<Vec<Probe>, ProbeSpecError> {
    let mut groups = group(elf.notes());
    let all: Vec<String> = groups.keys().map(|(provider, name)| format!("{provider}:{name}")).collect();
    groups.retain(|key, _| glob::matches(provider, &key.0) && glob::matches(name, &key.1));
    if groups.is_empty() {
        let hint = if all.is_empty() { "; it has none at all" } else { "" };
        let problem = format!("{} has no USDT probe {provider}:{name}{hint}", file.display());
        return Err(ProbeSpecError { problem, suggestions: Some((format!("{provider}:{name}"), all)) });
    }
    groups.into_iter().map(|(key, notes)| mark(spec, file, (key, &notes), elf)).collect()
}

fn mark(
    spec: &ProbeSpec,
    file: &Path,
    ((provider, name), notes): ((String, String), &[Note]),
    elf: &Elf<'_>,
) -> Result<Probe, ProbeSpecError> {
    let numbers: Vec<usize> = readable(notes).map(|(number, ..)| number).collect();
    let (arguments, numbers) = match &spec.arguments {
        None => (types(notes), numbers),
        // By their order, as the file has them.
        Some(arguments) => match (0..arguments.len()).find(|number| !numbers.contains(number)) {
            None => (arguments.clone(), (0..arguments.len()).collect()),
            Some(missing) => {
                let problem = format!(
                    "{provider}:{name} of {} has no argument {missing} that can be read",
                    file.display()
                );
                return Err(ProbeSpecError::new(problem));
            }
        },
    };
    let site = |note: &Note| {
        let semaphore = if note.semaphore == 0 { Some(0) } else { elf.offset(note.semaphore) };
        let problem = || {
            ProbeSpecError::new(format!("{}: {provider}:{name} counts outside of the file", file.display()))
        };
        Ok(Site {
            offset: elf.probe_offset(note.pc)?,
            semaphore: semaphore.filter(|at| u32::try_from(*at).is_ok()).ok_or_else(problem)?,
            values: numbers.iter().filter_map(|number| note.values[*number]).collect(),
        })
    };
    Ok(Probe {
        event: event(&provider, &name, &arguments),
        arguments: arguments.iter().map(|(_, ty)| *ty).collect(),
        target: Target::File(file.to_owned()),
        at_return: false,
        sites: notes.iter().map(site).collect::<Result<_, ProbeSpecError>>()?,
    })
}
