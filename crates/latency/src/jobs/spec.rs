//! Specification of the jobs to monitor: `motor:control,deadline=5ms` or
//! `control=/usr/bin/app:on_cycle,deadline=500us`.

use std::time::Duration;

use tompion_kernel::probes;

/// Jobs to monitor, as a user names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Source of the jobs.
    pub source: JobSource,
    /// Deadline relative to the release, in nanoseconds; none for the program's own.
    pub deadline: Option<u64>,
    /// Time from one release to the next, in nanoseconds.
    pub period: Option<u64>,
}

/// Source of jobs: instrumentation or probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSource {
    /// Jobs of `TOMPION_JOB` whose `provider:name` matches this glob.
    Instrumented(String),
    /// Job of a program without instrumentation: it begins at one probe and ends at another.
    Probed {
        /// Name of the job.
        name: String,
        /// Probe at its begin.
        begin: Box<probes::ProbeSpec>,
        /// Probe at its end.
        end: Box<probes::ProbeSpec>,
    },
}

impl JobSpec {
    /// Parses `GLOB[,deadline=TIME][,period=TIME]` or
    /// `NAME=BEGIN[,END][,deadline=TIME][,period=TIME]`. `time` parses a time.
    ///
    /// # Errors
    /// A line that says what was expected. Programs and their places are looked for when watching
    /// begins.
    pub fn parse(text: &str, time: impl Fn(&str) -> Result<Duration, String>) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (mut deadline, mut period, mut end) = (None, None, None);
        for part in parts {
            let value = |text: &str| match time(text)?.as_nanos() as u64 {
                0 => Err(format!("expected a time above 0, found `{part}`")),
                ns => Ok(Some(ns)),
            };
            match part.split_once('=') {
                Some(("deadline", text)) => deadline = value(text)?,
                Some(("period", text)) => period = value(text)?,
                None if end.is_none() && first.contains('=') => end = Some(part),
                _ => return Err(format!("expected deadline=TIME or period=TIME, found `{part}`")),
            }
        }
        let source = match first.split_once('=') {
            None if first.is_empty() => {
                return Err(
                    "expected PROVIDER:NAME, or NAME=BEGIN,END for a program that can't be changed".into()
                );
            }
            None => JobSource::Instrumented(first.to_owned()),
            Some((name, begin)) => probed(name, begin, end)?,
        };
        Ok(Self { source, deadline, period })
    }
}

fn probed(name: &str, begin: &str, end: Option<&str>) -> Result<JobSource, String> {
    if name.is_empty() || name.contains(['*', '?', '[']) {
        return Err(format!("expected a job's name before `=`, found `{name}`"));
    }
    let full =
        |text: &str| if probes::ProbeSpec::is_one(text) { text.to_owned() } else { format!("uprobe:{text}") };
    let parse = |text: &str| probes::ProbeSpec::parse(text).map_err(|error| error.to_string());
    let begin = full(begin);
    let end = match (end, begin.strip_prefix("uprobe:")) {
        (Some(end), _) => full(end),
        // A function's return.
        (None, Some(function)) => format!("uretprobe:{function}"),
        (None, None) => return Err(format!("expected NAME={begin},END: only functions end by themselves")),
    };
    if [&begin, &end].iter().any(|place| place.starts_with('k')) {
        return Err(format!("expected places in a program, found `{begin},{end}`"));
    }
    let (begin, end) = (Box::new(parse(&begin)?), Box::new(parse(&end)?));
    Ok(JobSource::Probed { name: name.to_owned(), begin, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<JobSpec, String> {
        let time = |text: &str| {
            let number = text.strip_suffix("us").and_then(|number| number.parse().ok());
            number.map(Duration::from_micros).ok_or_else(|| format!("expected a time, found `{text}`"))
        };
        JobSpec::parse(text, time)
    }

    #[test]
    fn jobs_are_instrumented_or_lie_between_two_probes() {
        let instrumented = parse("motor:*,deadline=500us,period=1000us").unwrap();
        assert_eq!(
            instrumented,
            JobSpec {
                source: JobSource::Instrumented("motor:*".into()),
                deadline: Some(500_000),
                period: Some(1_000_000)
            }
        );
        let probe = |text: &str| Box::new(probes::ProbeSpec::parse(text).unwrap());
        let probed = |begin: &str, end: &str| JobSource::Probed {
            name: "control".into(),
            begin: probe(begin),
            end: probe(end),
        };
        let source = |text: &str| parse(text).unwrap().source;
        assert_eq!(source("control=/bin/sh:main"), probed("uprobe:/bin/sh:main", "uretprobe:/bin/sh:main"));
        assert_eq!(
            source("control=/bin/sh:main,sh:main+0x10,deadline=5us"),
            probed("uprobe:/bin/sh:main", "uprobe:sh:main+0x10")
        );
        assert_eq!(
            source("control=usdt:/bin/sh:a:b,usdt:/bin/sh:a:c"),
            probed("usdt:/bin/sh:a:b", "usdt:/bin/sh:a:c")
        );
    }

    #[test]
    fn errors_say_what_was_expected() {
        for (wrong, words) in [
            ("", "expected PROVIDER:NAME, or NAME=BEGIN,END"),
            ("motor:control,500us", "expected deadline=TIME or period=TIME, found `500us`"),
            ("motor:control,deadline=0us", "expected a time above 0"),
            ("motor:control,deadline=soon", "expected a time, found `soon`"),
            ("=/bin/sh:main", "expected a job's name before `=`"),
            ("a*=/bin/sh:main", "expected a job's name before `=`"),
            ("control=usdt:/bin/sh:a:b", "only functions end by themselves"),
            ("control=/bin/sh", "`uprobe:/bin/sh` is not of the form uprobe:BINARY:FUNCTION"),
            ("control=kprobe:vfs_read,kretprobe:vfs_read", "expected places in a program"),
            ("control=/bin/sh:a,/bin/sh:b,/bin/sh:c", "expected deadline=TIME or period=TIME"),
        ] {
            let found = parse(wrong).unwrap_err();
            assert!(found.contains(words), "{wrong}: {found}");
        }
    }
}
