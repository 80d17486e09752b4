//! The kernel beside the programs of a recording: begun, or taken over from a recorder that was
//! killed.

use std::io;

use tompion_kernel_trace::{self as kernel, Keep, Kernel, LeftKernel, Plan};
use tompion_manifest::Manifest;
use tompion_os::{DirHandle, FileRights};
use tompion_restart_state::ProcessBegin;

use super::Config;
use crate::{
    consumer::{CommandSender, ConsumerCommand},
    session_config::SessionConfig,
    target::{ProcessTree, Target},
};

/// Has the manifest say that the kernel is not recorded.
pub(super) fn leave_out_kernel(manifest: &mut Manifest, folder: &DirHandle) -> io::Result<()> {
    manifest.session.kernel = false;
    manifest.write(folder, manifest.session.is_durable())
}

/// Starts the kernel's thread, unless it runs. The consumer has its chunks end.
pub(super) fn start_kernel(kernel: Option<&mut Kernel>, commands: &CommandSender) -> io::Result<()> {
    let Some(kernel) = kernel else { return Ok(()) };
    kernel.start()?;
    if let Some(chunks) = kernel.take_chunk_control() {
        let _ = commands.send(ConsumerCommand::KernelBegins(chunks));
    }
    Ok(())
}

/// The kernel's programs, attached. Where that can't be, one line says why, and programs are
/// recorded alone.
pub(super) fn prepare_kernel(
    config: &Config,
    session_config: &SessionConfig,
    notice: fn(&str),
) -> Option<Kernel> {
    let choice = config.kernel.as_ref()?;
    // What programs are loaded with is root's to read.
    let _rights = FileRights::of_the_process().inspect_err(|error| notice(&error.to_string())).ok();
    let family = family(config);
    let follow = family.members().collect();
    let plan = Plan { follow, named: &family.named, ..plan(session_config, choice, notice) };
    let prepared = Kernel::prepare(&plan).and_then(|kernel| {
        follow_newcomers(&kernel, family.clone())?;
        Ok(kernel)
    });
    prepared.map_err(|error| notice(&format!("the kernel is not recorded: {error}"))).ok()
}

/// The kernel of a recorder that was killed, to be recorded on; none if nothing was recorded, so
/// that it begins. `begin` is the state with which the open chunk began. The error says why kernel
/// events end, unless they had ended before.
pub(super) fn take_over_kernel(
    left: Option<Result<LeftKernel, String>>,
    begin: Option<ProcessBegin>,
    (config, session_config): (&Config, &SessionConfig),
    notice: fn(&str),
) -> Result<Option<Kernel>, Option<String>> {
    let left = left.ok_or(None)?.map_err(Some)?;
    if !left.has_begun() {
        return Ok(None);
    }
    let (family, choice) = (family(config), left.choice.clone());
    let plan = Plan { named: &family.named, ..plan(session_config, &choice, notice) };
    left.take_over(&plan, begin).map(Some).map_err(Some)
}

/// Plan of the kernel's trace, which follows no process.
pub(crate) fn plan<'a>(
    session_config: &'a SessionConfig,
    choice: &'a kernel::KernelChoice,
    notice: fn(&str),
) -> Plan<'a> {
    let keep = session_config.keeper.as_ref().zip(session_config.backing.as_ref());
    Plan {
        choice,
        filter: session_config.rules.filter.as_deref(),
        folder: &session_config.folder,
        is_in_chunks: session_config.is_in_chunks,
        overwrite: session_config.overwrite,
        hostname: &session_config.hostname,
        boot_id: &session_config.boot_id,
        clock_offset_ns: session_config.clock_offset_ns,
        ring_size: session_config.geometry.ring_size(),
        follow: Vec::new(),
        named: &[],
        notice,
        keep: keep.map(|(keeper, backing)| Keep { keeper, backing }),
    }
}

/// Processes with system calls that are recorded; none if all are.
fn family(config: &Config) -> ProcessTree {
    match &config.target {
        // Its children: the command is to be.
        Target::Command(_) => ProcessTree::new(vec![std::process::id()], false),
        Target::Processes(family) => family.clone(),
        Target::Everything | Target::SharedFolder(_) => ProcessTree::default(),
    }
}

/// Follows descendants that were made after the family was counted and before the kernel's programs
/// were attached. From then on these follow each child of a process that they know.
fn follow_newcomers(kernel: &Kernel, mut family: ProcessTree) -> Result<(), kernel::Error> {
    loop {
        let found = family.find_more();
        if found.is_empty() {
            return Ok(());
        }
        kernel.follow(&found)?;
        family.descendants.extend(found);
    }
}
