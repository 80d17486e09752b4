//! `tompion rules`: shows or replaces the rules of a running recording.

use std::process::ExitCode;

use clap::Args;
use tompion_control::Rules;
use tompion_schema::Level;
use tompion_status::{describe_all_rules, describe_change, describe_rules, describe_words};

use super::record;
use crate::{
    filter,
    messages::{self, escape_control, print_status},
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion rules flight                         # show them\n  \
    tompion rules flight -e 'db:*' -x 'db:noisy*'\n  \
    tompion rules flight --level info\n  \
    tompion rules 4711 -e 'net:*' --filter 'len > 1500'\n  \
    tompion rules flight -e '*'                  # all events again\n  \
    tompion rules flight -k 'sched_*,irq_*'      # other kernel events\n  \
    tompion rules flight -k none                 # no kernel events for now\n\n\
Any option but -k replaces all rules; options that are left out are as in `tompion record`. Programs follow while \
they run, in about a millisecond. Those without a Tompion thread (with --preload, for example) keep the rules that \
they began with. Programs that start later follow at once. Kernel events change with -k only, if the recording has \
begun with -k and without --filter. Its probes stay, and must be named again.\n\n\
Exit status: 0 shown, or all programs follow; 1 refused, or some don't follow (yet), or some kernel events can't be \
recorded; 2 several recordings to choose from.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder [default: this user's only recording]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Record events whose provider:name matches one of these (repeatable) [default: all]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    events: Vec<String>,
    /// Exclude events whose provider:name matches (repeatable)
    #[arg(short = 'x', long = "exclude", value_name = "GLOBS", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Record events of this log level or more severe: emerg, alert, crit, err, warning, notice,
    /// info, debug… or 0 to 14
    #[arg(long, value_name = "LEVEL", value_parser = record::level)]
    level: Option<Level>,
    /// Record only events for which this is true, such as 'rows > 100 && table == "orders*"'
    #[arg(long, value_name = "EXPR", value_parser = filter::for_recording)]
    filter: Option<String>,
    /// Record these kernel events instead of those so far, as `record -k` takes them, or none;
    /// alone, it leaves the other rules as they are
    #[arg(short, long, value_name = "GLOBS", num_args = 0..=1, default_missing_value = "", value_delimiter = ',')]
    kernel: Option<Vec<String>>,
}

impl Arguments {
    /// Returns the new rules; none if the present ones are to be shown.
    fn rules(&self) -> Option<Rules> {
        let Self { events, exclude, level, filter, .. } = self;
        if events.is_empty() && exclude.is_empty() && level.is_none() && filter.is_none() {
            return None;
        }
        Some(Rules {
            include: if events.is_empty() { vec!["*".into()] } else { events.clone() },
            exclude: exclude.clone(),
            level: level.unwrap_or(Level::LOWEST).number(),
            filter: filter.clone(),
        })
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Some(recording) = super::only_recording(arguments.session.as_deref())? else {
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    };
    let rules = arguments.rules();
    if rules.is_none() && arguments.kernel.is_none() {
        let status = recording.status()?;
        print_status(format!("{}: {}", recording.name(), describe_all_rules(&status)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut follows = true;
    if let Some(rules) = rules {
        let change = recording.set_rules(&rules)?;
        print_status(format!(
            "{}: {}; {}",
            recording.name(),
            describe_rules(&rules, 0),
            describe_change(&change, "rules")
        ));
        follows = change.pending.is_empty() && change.fixed.is_empty();
    }
    if let Some(words) = &arguments.kernel {
        let problems = recording.set_kernel_events(words)?;
        print_status(format!("{}: kernel events {}", recording.name(), describe_words(words)));
        problems
            .iter()
            .for_each(|problem| print_status(format!("not recorded: {}", escape_control(problem))));
        follows &= problems.is_empty();
    }
    Ok(if follows { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}
