//! `tompion serve`: supervises sessions that files describe.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tompion_grants::Grants;
use tompion_status::write_grants;
use tompion_supervisor::Supervisor;

use crate::messages::{FAILED, escape_control, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion serve                    # in this terminal\n  \
    systemctl --user enable --now tompion.service\n  \
    tompion apply flight             # start the session of flight.toml\n  \
    tompion status                   # its recordings\n  \
    sudo tompion serve --check-grants    # what other users may record\n\n\
A session is a file NAME.toml in ~/.config/tompion/sessions, or in /etc/tompion/sessions for root's. Those with \
`start = \"boot\"` begin with the supervisor, others with `tompion apply NAME`. A recorder that fails is started again, \
after a pause of 100 ms that doubles up to 30 s. SIGHUP begins new sessions with `start = \"boot\"`.\n\n\
The supervisor is in the way of no event: recorders are processes of their own, which run on when it ends or is \
killed. The next one takes them over. `tompion stop NAME` ends them.\n\n\
Root's supervisor serves other users by grants: files *.toml in /etc/tompion/grants.d, /run/tompion/grants.d and \
/usr/lib/tompion/grants.d. SIGHUP reads them again; sessions that are beyond them end.\n\n\
Environment: TOMPION_SESSIONS=DIR[:DIR…] names other folders for sessions, TOMPION_GRANTS=DIR[:DIR…] for grants, the \
lowest priority first.\n\n\
Exit status: 0 ended by SIGINT or SIGTERM, 1 it could not start: another one runs, or sudo was used, for example; \
with --check-grants, a file is wrong.")]
pub struct Arguments {
    /// Print what other users may record, and what is wrong with files of grants, and end
    #[arg(long)]
    check_grants: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.check_grants {
        // The files are root's, and may be readable for root alone.
        let _rights = tompion_os::FileRights::of_the_process()?;
        let is_sound = write_grants(&Grants::folders(), &mut anstream::stdout().lock())?;
        return Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(FAILED) });
    }
    let program = std::env::current_exe().context("can't tell where this program is")?;
    let supervisor = Supervisor::start(&program, |problem| print_status(escape_control(problem)))?;
    let folders: Vec<String> =
        supervisor.folders().iter().map(|folder| folder.display().to_string()).collect();
    print_status(format!("supervises the sessions in {}", folders.join(", ")));
    supervisor.run().context("can't wait for recorders")?;
    print_status("ends; recorders run on (tompion status)");
    Ok(ExitCode::SUCCESS)
}
