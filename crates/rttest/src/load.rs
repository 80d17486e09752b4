//! Loads that keep the machine busy while it is tested: programs made for that, and a build.
//!
//! Each runs again and again in a process group of its own, which is ended as a whole.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Error, recording::Scratch};

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Many processes that send each other messages: the scheduler's work.
    Hackbench,
    /// Computing, input and output, memory that comes and goes, processes that are born and die.
    StressNg,
    /// A C program is compiled, as many times at once as there are CPUs.
    Build,
}

impl Load {
    /// All loads.
    pub const ALL: [Self; 3] = [Self::Hackbench, Self::StressNg, Self::Build];

    /// Name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hackbench => "hackbench",
            Self::StressNg => "stress-ng",
            Self::Build => "build",
        }
    }

    /// The program that it takes, and how that is installed.
    const fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Hackbench => ("hackbench", "apt install rt-tests"),
            Self::StressNg => ("stress-ng", "apt install stress-ng"),
            Self::Build => ("cc", "apt install gcc libc6-dev"),
        }
    }

    /// Whether its program is there.
    ///
    /// # Errors
    /// A line that says what is missing.
    pub fn is_there(self) -> Result<(), String> {
        let (program, install) = self.program();
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            Ok(())
        } else {
            Err(format!("the load {} is left out: `{program}` is missing ({install})", self.name()))
        }
    }

    /// Script for the shell, with the number of CPUs as its first argument.
    const fn script(self) -> &'static str {
        match self {
            Self::Hackbench => "while hackbench -g \"$1\" -l 2000; do :; done",
            Self::StressNg => {
                "exec stress-ng --quiet --cpu \"$1\" --io 1 --vm 1 --vm-bytes 64M --fork 1 --pipe 1 --timeout 0"
            }
            Self::Build => {
                "while :; do for job in $(seq \"$1\"); do cc -O2 -c unit.c -o unit-$job.o & done; wait; \
                 test -e unit-1.o || exit 1; rm unit-1.o; done"
            }
        }
    }
}

/// Functions of the program that is compiled.
const FUNCTIONS: usize = 400;

/// The program that is compiled.
fn unit() -> String {
    let function = |number: usize| {
        format!(
            "static int step{number}(const char *text, int seed)\n{{\n\
             \tint sum = seed;\n\tfor (; *text; text++)\n\t\tsum = sum * {} + (*text ^ (sum >> {}));\n\
             \tif (sum % 7 == {})\n\t\tprintf(\"%d\\n\", sum);\n\treturn sum;\n}}\n",
            31 + number,
            number % 13,
            number % 7
        )
    };
    let calls = (0..FUNCTIONS).map(|number| format!("\tsum += step{number}(words[0], sum);\n"));
    let (functions, calls): (String, String) = ((0..FUNCTIONS).map(function).collect(), calls.collect());
    format!(
        "#include <stdio.h>\n{functions}int main(int count, char **words)\n{{\n\tint sum = count;\n{calls}\treturn sum;\n}}\n"
    )
}

/// Loads that run until this is dropped.
#[derive(Debug)]
pub struct Running {
    children: Vec<(Load, Child)>,
    scratch: Scratch,
}

/// Time for which they run before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

impl Running {
    /// Starts them, and lets them come into their stride.
    ///
    /// # Errors
    /// A program can't be run, or a file can't be written.
    pub fn start(loads: &[Load]) -> Result<Self, Error> {
        let mut running = Self { children: Vec::new(), scratch: Scratch::new(None)? };
        let source = running.scratch.path().join("unit.c");
        std::fs::write(&source, unit()).map_err(|error| Error::File(source, error))?;
        for load in loads {
            let child = spawn(*load, running.scratch.path())?;
            running.children.push((*load, child));
        }
        if !loads.is_empty() {
            std::thread::sleep(WARM_UP);
        }
        Ok(running)
    }

    /// Returns the loads that ended by themselves: later measurements were made without them.
    pub fn ended(&mut self) -> Vec<Load> {
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        self.children.iter_mut().filter_map(|(load, child)| has_ended(child).then_some(*load)).collect()
    }
}

fn spawn(load: Load, folder: &Path) -> Result<Child, Error> {
    let cpus = tompion_os::allowed_cpus().len().max(1).to_string();
    Command::new("sh")
        .args(["-c", load.script(), "sh", &cpus])
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Error::Program("sh".into(), error))
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = tompion_os::kill_group(child.id(), tompion_os::signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_runs_until_it_is_dropped() {
        if Load::Build.is_there().is_err() {
            return;
        }
        let mut running = Running::start(&[Load::Build]).unwrap();
        assert_eq!(running.ended(), []);
        let (group, folder) = (running.children[0].1.id(), running.scratch.path().to_owned());
        drop(running);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while lives(group) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!lives(group) && !folder.exists());
    }

    /// Whether a process of the group is there, and no zombie.
    fn lives(group: u32) -> bool {
        let group = group.to_string();
        let stats = std::fs::read_dir("/proc").unwrap().flatten();
        let mut stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        // Behind the name: state, parent, group.
        stats.any(|stat| {
            let words = stat.rsplit(')').next().unwrap_or_default();
            let words: Vec<&str> = words.split_whitespace().take(3).collect();
            matches!(words[..], [state, _, found] if found == group && state != "Z" && state != "X")
        })
    }

    #[test]
    fn what_is_compiled_has_all_its_functions() {
        let unit = unit();
        assert_eq!(unit.matches("static int step").count(), FUNCTIONS);
        assert!(unit.contains("step0(words[0], sum)") && unit.contains("step399(words[0], sum)"));
    }

    #[test]
    fn loads_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = Load::ALL.iter().map(|load| load.name()).collect();
        assert_eq!(names.len(), Load::ALL.len());
        assert_eq!(serde_json::to_string(&Load::StressNg).unwrap(), "\"stress-ng\"");
    }
}
