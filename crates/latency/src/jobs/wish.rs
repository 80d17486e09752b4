//! Which jobs are watched: `motor:control,deadline=5ms`, `control=/usr/bin/app:on_cycle,deadline=500us`.

use std::time::Duration;

use tompion_kernel::probes;

/// A wish of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Which jobs.
    pub which: Which,
    /// From when on an activation is too late, in nanoseconds after its release; none for what the program says.
    pub deadline: Option<u64>,
    /// How long it is from one release to the next, in nanoseconds.
    pub period: Option<u64>,
}

/// Jobs, and how they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of `TOMPION_JOB` whose `provider:name` matches.
    Told(String),
    /// One of programs that say nothing: it has this name, begins at one probe and ends at another.
    Probed {
        /// Its name here.
        name: String,
        /// Where it begins.
        begin: Box<probes::ProbeSpec>,
        /// Where it ends.
        end: Box<probes::ProbeSpec>,
    },
}

impl Wish {
    /// Reads `GLOB[,deadline=TIME][,period=TIME]` or `NAME=BEGIN[,END][,deadline=TIME][,period=TIME]`. `time` reads a time.
    ///
    /// # Errors
    /// A line that says what was expected, or what a place has not.
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
        let which = match first.split_once('=') {
            None if first.is_empty() => {
                return Err(
                    "expected PROVIDER:NAME, or NAME=BEGIN,END for a program that can't be changed".into()
                );
            }
            None => Which::Told(first.to_owned()),
            Some((name, begin)) => probed(name, begin, end)?,
        };
        Ok(Self { which, deadline, period })
    }
}

fn probed(name: &str, begin: &str, end: Option<&str>) -> Result<Which, String> {
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
    Ok(Which::Probed { name: name.to_owned(), begin, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Wish, String> {
        let time = |text: &str| {
            let number = text.strip_suffix("us").and_then(|number| number.parse().ok());
            number.map(Duration::from_micros).ok_or_else(|| format!("expected a time, found `{text}`"))
        };
        Wish::parse(text, time)
    }

    #[test]
    fn jobs_are_told_by_programs_or_lie_between_two_places() {
        let told = parse("motor:*,deadline=500us,period=1000us").unwrap();
        assert_eq!(
            told,
            Wish { which: Which::Told("motor:*".into()), deadline: Some(500_000), period: Some(1_000_000) }
        );
        let probe = |text: &str| Box::new(probes::ProbeSpec::parse(text).unwrap());
        let probed = |begin: &str, end: &str| Which::Probed {
            name: "control".into(),
            begin: probe(begin),
            end: probe(end),
        };
        let which = |text: &str| parse(text).unwrap().which;
        assert_eq!(which("control=/bin/sh:main"), probed("uprobe:/bin/sh:main", "uretprobe:/bin/sh:main"));
        assert_eq!(
            which("control=/bin/sh:main,sh:main+0x10,deadline=5us"),
            probed("uprobe:/bin/sh:main", "uprobe:/bin/sh:main+0x10")
        );
        assert_eq!(
            which("control=usdt:/bin/sh:a:b,usdt:/bin/sh:a:c"),
            probed("usdt:/bin/sh:a:b", "usdt:/bin/sh:a:c")
        );
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (wrong, words) in [
            ("", "expected PROVIDER:NAME, or NAME=BEGIN,END"),
            ("motor:control,500us", "expected deadline=TIME or period=TIME, found `500us`"),
            ("motor:control,deadline=0us", "expected a time above 0"),
            ("motor:control,deadline=soon", "expected a time, found `soon`"),
            ("=/bin/sh:main", "expected a job's name before `=`"),
            ("a*=/bin/sh:main", "expected a job's name before `=`"),
            ("control=usdt:/bin/sh:a:b", "only functions end by themselves"),
            ("control=/nowhere:main", "there is no program or library `/nowhere`"),
            ("control=kprobe:vfs_read,kretprobe:vfs_read", "expected places in a program"),
            ("control=/bin/sh:a,/bin/sh:b,/bin/sh:c", "expected deadline=TIME or period=TIME"),
        ] {
            let found = parse(wrong).unwrap_err();
            assert!(found.contains(words), "{wrong}: {found}");
        }
    }
}
