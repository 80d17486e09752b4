//! Compiles the BPF programs.

#[path = "../kernel/compile/programs.rs"]
mod programs;

fn main() {
    programs::build("src/bpf/monitor.bpf.c", "monitor.o", "the latency monitor is");
    programs::build("src/bpf/attribution.bpf.c", "attribution.o", "the attribution of latencies is");
    programs::build("src/bpf/jobs.bpf.c", "jobs.o", "watching jobs is");
}
