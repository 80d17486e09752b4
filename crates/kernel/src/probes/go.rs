//! Calling convention of Go's functions: where their arguments are, and why their returns are not
//! probed.
//!
//! Go moves the stacks of its goroutines. A return probe puts an address of the kernel's on the
//! stack in the place of the one to return to; the runtime finds it when it moves or walks the
//! stack, and ends the program. So does a probe at a return of any other tracer.

use std::path::Path;

use super::{ArgumentType, ProbeSpecError, value::Value};

/// First bytes of the section `.go.buildinfo` (`src/debug/buildinfo/buildinfo.go` of Go).
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Position of the flags in it.
const FLAGS: usize = 15;
/// Flag that says that the version of Go stands in the section itself, as since Go 1.18.
const HAS_VERSION: u8 = 2;
/// Parts of names of functions that C compilers split off, which have a dot as Go's functions have.
const PARTS_OF_C: [&str; 4] = [".cold", ".part.", ".isra.", ".constprop."];
/// End of the names of functions whose arguments are on the stack.
const ON_STACK: &str = ".abi0";

/// Go function at a probe's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GoFunction {
    /// Whether its arguments are where the register convention says.
    has_registers: bool,
}

impl GoFunction {
    /// Recognises a function by the section `.go.buildinfo` of its file and its name; `None` if it
    /// is one of C.
    pub fn new(info: &[u8], name: Option<&str>) -> Option<Self> {
        if !info.starts_with(MAGIC) || name.is_some_and(is_of_c) {
            return None;
        }
        let is_recent = info.get(FLAGS).is_some_and(|flags| flags & HAS_VERSION != 0);
        let is_on_stack = name.is_some_and(|name| name.ends_with(ON_STACK));
        Some(Self { has_registers: is_recent && !is_on_stack })
    }

    /// Fails if arguments are wanted and where they are is unknown.
    pub fn check(self, file: &Path, wants_arguments: bool) -> Result<(), ProbeSpecError> {
        if self.has_registers || !wants_arguments {
            return Ok(());
        }
        Err(ProbeSpecError::new(format!(
            "{}: where this Go function finds its arguments is unknown (Go before 1.18, or assembly): probe it \
             without arguments",
            file.display()
        )))
    }
}

/// Whether a function of a Go program is one of C. Go's names have their package before a dot.
fn is_of_c(name: &str) -> bool {
    !name.contains('.') || PARTS_OF_C.iter().any(|part| name.contains(part))
}

/// Place of an argument word.
pub(super) fn argument(number: usize, name: &str, ty: ArgumentType) -> Result<Value, ProbeSpecError> {
    if ty.is_text() {
        return Err(ProbeSpecError::new(format!(
            "`{name}`: texts of Go don't end with NUL; a Go string is two words, as in `{name}: x64, {name}_len: i64`"
        )));
    }
    Value::of_go_call(number, ty).ok_or_else(|| {
        ProbeSpecError::new(format!(
            "`{name}`: word {} of a Go function's arguments is in no register",
            number + 1
        ))
    })
}

/// Error that says why a return is not probed.
pub(super) fn no_return(file: &Path, function: &str) -> ProbeSpecError {
    ProbeSpecError::new(format!(
        "{}: a return probe at `{function}` would kill the program: Go moves its stacks; probe the function's beginning, \
         or an instruction after the call",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECENT: &[u8] = b"\xff Go buildinf:\x08\x02";
    const OLD: &[u8] = b"\xff Go buildinf:\x08\x00";

    #[test]
    fn functions_of_go_are_distinguished_from_those_of_c() {
        let registers = |info, name| GoFunction::new(info, name).map(|function| function.has_registers);
        for name in ["main.compute", "net/http.(*conn).serve", "main.F[go.shape.int]"] {
            assert_eq!(registers(RECENT, Some(name)), Some(true), "{name}");
            assert_eq!(registers(OLD, Some(name)), Some(false), "{name}");
        }
        for name in ["malloc", "x_cgo_init", "sum.part.0", "sum.cold", "sum.constprop.0"] {
            assert_eq!(registers(RECENT, Some(name)), None, "{name}");
        }
        assert_eq!(registers(RECENT, Some("runtime.memmove.abi0")), Some(false));
        assert_eq!(registers(RECENT, None), Some(true), "a stripped program");
        assert_eq!(registers(b"something else", Some("main.main")), None);
    }
}
