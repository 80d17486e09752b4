//! Compiles the BPF programs.

#[path = "compile/programs.rs"]
mod programs;

fn main() {
    programs::build("src/bpf/tracer.bpf.c", "tracer.o", "kernel events are");
}
