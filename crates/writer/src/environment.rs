//! Environment of traces: the key–value pairs that say on which machine, of what and by which
//! tracer a trace is. Readers know domains, and what events may mean, by the names that LTTng uses.

use std::{fs, path::Path};

use tompion_ctf::metadata::EnvironmentValue;

/// Key–value pairs of a trace.
pub type Environment = Vec<(String, EnvironmentValue)>;

/// Names of the machine and its kernel.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Name of the machine.
    pub hostname: String,
    /// Type, release and version of the kernel.
    pub kernel: [String; 3],
    /// Identifies the boot.
    pub boot_id: String,
}

impl HostInfo {
    /// Reads the names from `/proc`. A name that can't be read is empty.
    pub fn read() -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        Self {
            hostname: read("hostname"),
            kernel: ["ostype", "osrelease", "version"].map(read),
            boot_id: read("random/boot_id"),
        }
    }

    /// Returns the kernel's names in one line.
    pub fn kernel_line(&self) -> String {
        self.kernel.join(" ")
    }
}

/// Returns the environment of a kernel trace.
pub fn of_kernel(hostname: &str, kernel: &[String; 3]) -> Environment {
    let [sysname, release, version] = kernel;
    let mut environment = of_tracer(hostname, "kernel", "lttng-modules");
    environment.extend([
        text("sysname", sysname),
        text("kernel_release", release),
        text("kernel_version", version),
    ]);
    environment
}

/// Returns the environment of a process's trace.
pub fn of_process(hostname: &str, pid: u32, name: &str) -> Environment {
    let mut environment = of_tracer(hostname, "ust", "lttng-ust");
    environment.extend([("vpid".to_owned(), EnvironmentValue::from(i64::from(pid))), text("procname", name)]);
    environment
}

fn of_tracer(hostname: &str, domain: &str, tracer: &str) -> Environment {
    vec![
        text("hostname", hostname),
        text("domain", domain),
        text("tracer_name", tracer),
        ("tracer_major".into(), EnvironmentValue::from(2)),
        ("tracer_minor".into(), EnvironmentValue::from(13)),
        text("producer", concat!("tompion ", env!("CARGO_PKG_VERSION"))),
    ]
}

/// Returns a pair with a text.
pub fn text(name: &str, value: &str) -> (String, EnvironmentValue) {
    (name.to_owned(), EnvironmentValue::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_name_their_machine_domain_and_tracer() {
        let kernel = ["Linux", "6.1.0", "#1 SMP"].map(str::to_owned);
        for (environment, domain, tracer, more) in [
            (of_kernel("box", &kernel), "kernel", "lttng-modules", text("kernel_release", "6.1.0")),
            (of_process("box", 7, "app"), "ust", "lttng-ust", text("procname", "app")),
        ] {
            for pair in [text("hostname", "box"), text("domain", domain), text("tracer_name", tracer), more] {
                assert!(environment.contains(&pair), "{pair:?}: {environment:?}");
            }
        }
    }
}
