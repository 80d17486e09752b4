//! Compiles the BPF programs.

#[path = "../kernel/compile/programs.rs"]
mod programs;

fn main() {
    programs::build("src/bpf/injector.bpf.c", "injector.o", "delays on purpose are");
}
