//! Compiles the BPF programs.

#[path = "../kernel/compile/programs.rs"]
mod programs;

fn main() {
    programs::build("src/bpf/monitor.bpf.c", "monitor.o", "the latency monitor is");
}
