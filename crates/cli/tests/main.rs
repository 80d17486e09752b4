//! The whole chain: real programs are compiled, recorded by the real command, and their traces read
//! by it and by babeltrace2.
//!
//! The quick form is part of every test run; `TOMPION_FULL=1` goes round the loops longer.

mod support;

mod abi;
mod as_babeltrace;
mod attach;
mod command_line;
mod config;
mod conformance;
mod emit_log;
mod export_roundtrip;
mod fallback;
mod faulty_producers;
mod fields;
mod flight_recorder;
mod full_disks;
mod hardened;
mod hostile;
mod kernel;
mod kernel_counts;
mod kernel_filter;
mod kernel_stacks;
mod kernel_state;
mod kernel_states;
mod kernel_stress;
mod kills;
mod monitor;
mod monitor_groups;
mod monitor_history;
mod monitor_incidents;
mod monitor_jobs;
mod monitor_munin;
mod monitor_service;
mod monitor_two;
mod plugins;
mod preload;
mod preload_func;
mod probes;
mod processes;
mod processes_confined;
mod processes_copies;
mod processes_filtered;
mod processes_shared_vm;
mod processes_short;
mod processes_static;
mod processes_watched;
mod real;
mod realtime;
mod recovery;
mod recovery_hostile;
mod report;
mod resource_limits;
mod root_files;
mod rust;
mod rust_tracing;
mod servers;
mod shield;
mod snapshot;
mod strangers;
mod sudo;
mod threads;
mod tracepoints;
mod view;
mod wakeups;
