//! Programs that have the library in themselves: wholly static ones, and dynamic ones with
//! `libtompion.a`.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    emit_log::{Recording, record},
    kernel::permitted,
    support::{TestDir, beside, compiler, run, static_library},
};

/// Options of the linker, by which a program comes by the library.
const WHOLLY: [&str; 2] = ["-static", "-static-pie"];
const INTO_A_DYNAMIC_ONE: &str = "-Wl,--export-dynamic-symbol=tompion_*";

/// Compiles a program and links the library into it; none where the system has no static libc.
fn link(dir: &TestDir, name: &str, option: &str) -> Option<PathBuf> {
    let folder = static_library();
    let output = dir.path(name);
    let unwinder = if WHOLLY.contains(&option) { "-lgcc_eh" } else { "-lgcc_s" };
    // (No path for shared libraries: glibc 2.36 stops at one in a static-pie program.)
    let mut cc = compiler();
    cc.args(["-std=gnu11", "-pthread", "-o"])
        .arg(output.as_os_str())
        .arg(beside("programs").join(format!("{name}.c")))
        .arg(option);
    cc.arg(folder.join("libtompion.a")).args([unwinder, "-lpthread", "-lm", "-ldl", "-lc"]);
    if WHOLLY.contains(&option) && !has_static_libc(dir, option) {
        println!("left out here: no libc for {option}");
        return None;
    }
    run(&mut cc).succeeded();
    Some(output)
}

fn has_static_libc(dir: &TestDir, option: &str) -> bool {
    std::fs::write(dir.path("nothing.c"), "int main(void) { return 0; }\n").expect("a source");
    let mut cc = Command::new("cc");
    cc.current_dir(dir.path("")).args([option, "nothing.c", "-o", "nothing"]);
    cc.output().is_ok_and(|output| output.status.success())
}

fn recorded(dir: &TestDir, program: &Path, words: &[&str]) -> Recording {
    let mut command: Vec<&dyn AsRef<OsStr>> = vec![&program];
    command.extend(words.iter().map(|word| word as &dyn AsRef<OsStr>));
    record(dir, &[], &command)
}

#[test]
fn programs_with_the_library_in_them_are_recorded_with_their_children() {
    for option in [WHOLLY[0], WHOLLY[1], INTO_A_DYNAMIC_ONE] {
        let dir = TestDir::new();
        let Some(program) = link(&dir, "lineage", option) else { continue };
        for (how, number, role, count) in [
            ("brood", "10", "child again", 10),
            ("chain", "5", "begins", 6),
            ("clone", "0", "grandchild", 1),
            ("threads", "10", "child", 10),
            ("fork in handlers", "10", "child of a handler", 10),
            ("daemon", "0", "worker", 1),
            ("raw fork", "0", "leaf", 1),
        ] {
            let recording = recorded(&dir, &program, &[how, number]);
            assert_eq!(recording.count(role), count, "{how}, {option}");
            assert_eq!(recording.lost()["total"], 0, "{how}, {option}");
        }
    }
}

#[test]
fn shared_vm_children_of_programs_with_the_library_in_them_record_nothing() {
    for option in [WHOLLY[0], WHOLLY[1], INTO_A_DYNAMIC_ONE] {
        let dir = TestDir::new();
        let Some(program) = link(&dir, "shared_vm", option) else { continue };
        for how in ["vfork", "clone and wait", "clone beside", "spawn"] {
            let recording = recorded(&dir, &program, &[how, "2"]);
            assert_eq!(recording.not_traced(), recording.printed("unrecorded "), "{how}, {option}");
            assert_eq!(recording.lost()["total"], 0, "{how}, {option}");
            assert!(recording.count("parent again") > 0 || recording.count("leaf") > 0);
        }
    }
}

/// The preloaded wrapper brings the shared library, which stands back.
#[test]
fn libraries_that_record_find_the_agent_of_the_program() {
    let dir = TestDir::new();
    let program = link(&dir, "lineage", INTO_A_DYNAMIC_ONE).expect("a dynamic program");
    let options = ["--preload", "malloc", "--subbuf-size", "1M"];
    run(&mut dir.recording("trace", &options, &[&program, &"brood", &"3"])).succeeded();
    let events = dir.trace("trace").events();
    let count = |name: &str| events.iter().filter(|event| event.name.starts_with(name)).count();
    assert_eq!(count("emit_log:step"), 8);
    assert!(count("lttng_ust_libc:") > 0);
}

fn static_sleeper(dir: &TestDir) -> Option<PathBuf> {
    if !has_static_libc(dir, WHOLLY[0]) {
        println!("left out here: no libc for {}", WHOLLY[0]);
        return None;
    }
    let source = "#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int argc, char **argv) { sleep(argc > 1 ? atoi(argv[1]) : 0); return 0; }\n";
    std::fs::write(dir.path("sleeper.c"), source).expect("a source");
    let program = dir.path("sleeper");
    run(Command::new("cc").arg("-static").arg(dir.path("sleeper.c")).arg("-o").arg(&program)).succeeded();
    Some(program)
}

#[test]
fn static_programs_that_take_no_part_are_named() {
    let dir = TestDir::new();
    let Some(program) = static_sleeper(&dir) else { return };
    let preload = ["--preload", "malloc"];
    let mut command = dir.recording("alone", &preload, &[&program]);
    let said = run(&mut command).exited(125).err;
    assert!(said.contains("not traced: sleeper (static)\n"), "{said}");
    let script = format!("{} 3; true", program.display());
    let said = run(&mut dir.recording("child", &preload, &[&"sh", &"-c", &script])).succeeded().err;
    assert!(said.contains("not traced: sleeper (static)\n"), "{said}");
    let said = run(&mut dir.recording("none", &preload, &[&"sh", &"-c", &"cat /dev/null"])).succeeded().err;
    assert!(!said.contains("not traced:") && !said.contains("not traced but"), "{said}");
}

/// Each of these programs is too short-lived to be seen except by the kernel.
#[test]
fn the_kernel_tells_which_programs_took_no_part() {
    let dir = TestDir::new();
    let Some(program) = static_sleeper(&dir).filter(|_| permitted()) else { return };
    let script = format!("{0}; {0}; cat /dev/null; env -i /bin/cat /dev/null", program.display());
    let options = ["-k", "--preload", "malloc", "--subbuf-size", "1M"];
    let said = run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script])).succeeded().err;
    let reported = said.lines().find(|line| line.contains("not traced but for its kernel events: "));
    let names = ["cat (reason unknown)", "sleeper (static, 2 processes)"];
    assert!(reported.is_some_and(|reported| names.iter().all(|name| reported.contains(name))), "{said}");
    // Without --preload, they were not expected to join.
    let said = run(&mut dir.recording("kernel", &["-k"], &[&"sh", &"-c", &script])).succeeded().err;
    assert!(!said.contains("not traced:") && !said.contains("not traced but"), "{said}");
}
