//! `tompion view`: our own traces, shown by the real command.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    kernel::permitted,
    support::{TOMPION, TestDir, tompion, wait_until},
};

/// A server of the command, which ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(trace: &Path) -> Self {
        let mut command = tompion();
        command.args(["view", "--no-open"]).arg(trace).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut url).expect("a line");
        Self { child, url: url.trim().into() }
    }

    fn get(&self, path: &str) -> Value {
        let (host, token) =
            self.url.strip_prefix("http://").and_then(|url| url.split_once("/?token=")).expect("a URL");
        let mut stream = TcpStream::connect(host).expect("a server");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        let request =
            format!("GET {path}&token={token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        serde_json::from_str(body).expect("JSON")
    }

    /// The trace, when all of it is known.
    fn whole(&self) -> Value {
        wait_until("all of it is known", || self.get("/api/trace?")["progress"] == 1.0);
        self.get("/api/trace?")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ctrl-C may be ignored where tests run in the background.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn names<'a>(tracks: &'a Value, kind: &'a str) -> Vec<&'a str> {
    let tracks = tracks["tracks"].as_array().expect("a list").iter();
    tracks.filter(|track| track["kind"] == kind).filter_map(|track| track["name"].as_str()).collect()
}

#[test]
fn a_program_of_ours_is_shown() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    let trace = dir.record(&[], &[&hello]);
    let server = Server::start(&dir.path("trace"));
    let whole = server.whole();
    assert_eq!(whole["events"], trace.stat()["events"]);
    assert_eq!(whole["growing"], false);
    let tracks = server.get("/api/tracks?");
    assert!(names(&tracks, "thread").contains(&"hello"), "{tracks}");
    assert!(dir.path("trace/.tompion-view").is_dir());
    // What is kept beside a trace is none of its events.
    assert_eq!(trace.agreed_count(), whole["events"].as_u64().expect("a number"));
}

#[test]
fn a_program_and_the_kernel_are_shown_on_one_time_line() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    let trace = dir.record(&["-k"], &[&hello]);
    let server = Server::start(&dir.path("trace"));
    let whole = server.whole();
    assert_eq!(whole["events"], trace.stat()["events"]);
    let tracks = server.get("/api/tracks?");
    assert!(!names(&tracks, "cpu").is_empty());
    let all = tracks["tracks"].as_array().expect("a list");
    // The library's own thread has the program's name until it gives itself another one.
    let is_first = |track: &&Value| {
        track["kind"] == "thread" && track["name"] == "hello" && track["tid"] == track["pid"]
    };
    let hello = all.iter().find(is_first).expect("its first thread");
    let kinds: Vec<&str> =
        hello["lanes"].as_array().expect("lanes").iter().filter_map(|lane| lane["kind"].as_str()).collect();
    // What it does by the kernel's events and by its own stands in one track.
    assert!(kinds.contains(&"thread") && kinds.contains(&"syscall") && kinds.contains(&"marks"), "{kinds:?}");
    assert!(hello["busy"].as_i64() > Some(0), "{hello}");
}

#[test]
fn a_picture_takes_the_place_of_an_older_one_when_it_is_there() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    dir.record(&[], &[&hello]);
    let browsers = dir.path("browsers");
    std::fs::create_dir(&browsers).expect("a folder");
    let browser = |does: &str| {
        let file = browsers.join("chromium");
        std::fs::write(&file, format!("#!/bin/sh\n{does}\n")).expect("a script");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    };
    let picture = dir.path("pictures/one.png");
    std::fs::create_dir(dir.path("pictures")).expect("a folder");
    std::fs::write(&picture, "old").expect("a picture");
    let save = || {
        let mut command = tompion();
        command.arg("view").arg("--png").arg(&picture).arg(dir.path("trace"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(browsers.clone()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).expect("paths"));
        command.output().expect("the command")
    };
    let pictures = || {
        let names = std::fs::read_dir(dir.path("pictures")).expect("a folder");
        names.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
    };
    browser("exit 1");
    let failed = save();
    assert_eq!(failed.status.code(), Some(1), "{}", String::from_utf8_lossy(&failed.stderr));
    assert_eq!((std::fs::read(&picture).expect("the old one"), pictures().len()), (b"old".to_vec(), 1));
    browser("for word; do case $word in --screenshot=*) echo new > \"${word#--screenshot=}\";; esac; done");
    let saved = save();
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    assert_eq!((std::fs::read(&picture).expect("a new one"), pictures().len()), (b"new\n".to_vec(), 1));
}

#[test]
fn a_view_without_content_reports_why() {
    let dir = TestDir::new();
    let run = |arguments: &[&str]| {
        let mut command: Command = tompion();
        let output =
            command.arg("view").args(arguments).current_dir(dir.path("")).output().expect("the command");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--no-open", "nothing"]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    let (code, said) = run(&["--listen", "everywhere"]);
    assert_eq!(code, Some(2), "{said}");
}

/// Writes a program of this name, which is found before all others on PATH.
fn stand_in(dir: &TestDir, name: &str, does: &str) -> std::ffi::OsString {
    let folder = dir.path("stand-ins");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{does}\n")).expect("a script");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).expect("paths")
}

/// A recorded trace that another user may read and write beside, and that user's number.
fn trace_of_unprivileged_user() -> Option<(TestDir, u32)> {
    const UNPRIVILEGED_UID: u32 = 65_534;
    if tompion_os::effective_user() != 0 {
        eprintln!("SKIPPED, sudo: only root can be started by it");
        return None;
    }
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    dir.record(&[], &[&hello]);
    std::fs::set_permissions(dir.path(""), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let owned = Command::new("chown").args(["-R", &UNPRIVILEGED_UID.to_string()]).arg(dir.path("")).status();
    assert!(owned.expect("chown").success());
    Some((dir, UNPRIVILEGED_UID))
}

#[test]
fn no_browser_is_started_as_root() {
    let Some((dir, user)) = trace_of_unprivileged_user() else { return };
    let path = stand_in(&dir, "xdg-open", "id -u > opened.new && mv opened.new opened");
    for is_sudo in [true, false] {
        let mut command = tompion();
        command.arg("view").arg(dir.path("trace")).current_dir(dir.path("")).env("PATH", &path);
        command.env("DISPLAY", ":77").stdout(Stdio::null()).stderr(Stdio::piped());
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        if is_sudo {
            command.env("SUDO_UID", user.to_string()).env("SUDO_GID", user.to_string());
        }
        let mut child = command.spawn().expect("the command");
        if is_sudo {
            wait_until("a browser", || dir.path("opened").exists());
            let opened = std::fs::read_to_string(dir.path("opened")).expect("a number");
            assert_eq!(opened.trim(), user.to_string());
            std::fs::remove_file(dir.path("opened")).expect("it was there");
        } else {
            let mut said = String::new();
            // The first line may say that the other user's index is not used.
            let lines = BufReader::new(child.stderr.as_mut().expect("a pipe")).lines().map_while(Result::ok);
            let is_said = lines.take(3).any(|line| {
                said.push_str(&line);
                line.contains("browsers are not started as root")
            });
            assert!(is_said, "{said}");
            assert!(!dir.path("opened").exists());
        }
        let _ = child.kill().and_then(|()| child.wait());
    }
}

#[test]
fn chromium_keeps_its_sandbox_except_as_root() {
    let Some((dir, user)) = trace_of_unprivileged_user() else { return };
    let draws = "for word; do case $word in --screenshot=*) (id -u; echo \"$@\") > \"${word#--screenshot=}\";; esac; done";
    let path = stand_in(&dir, "chromium", draws);
    let picture = dir.path("picture.png");
    for (is_sudo, has_sandbox) in [(true, true), (false, false)] {
        let mut command = tompion();
        command.arg("view").arg("--png").arg(&picture).arg(dir.path("trace")).env("PATH", &path);
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        if is_sudo {
            command.env("SUDO_UID", user.to_string()).env("SUDO_GID", user.to_string());
        }
        let output = command.output().expect("the command");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let drawn = std::fs::read_to_string(&picture).expect("a picture");
        let runner = if is_sudo { user } else { 0 };
        assert!(drawn.starts_with(&format!("{runner}\n")), "{drawn}");
        assert_eq!(!drawn.contains("--no-sandbox"), has_sandbox, "{drawn}");
    }
    // Where the system has none, it is said.
    let refuses =
        "case \"$*\" in *--no-sandbox*) ;; *) echo 'FATAL: No usable sandbox!' >&2; exit 1;; esac\n";
    let path = stand_in(&dir, "chromium", &format!("{refuses}{draws}"));
    let mut command = tompion();
    command.arg("view").arg("--png").arg(&picture).arg(dir.path("trace")).env("PATH", &path);
    let output = command.env("SUDO_UID", user.to_string()).env("SUDO_GID", user.to_string()).output();
    let output = output.expect("the command");
    assert!(
        output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("has no sandbox for Chromium")
    );
}

#[test]
fn root_draws_a_picture_through_no_link() {
    let Some((dir, user)) = trace_of_unprivileged_user() else { return };
    let draws =
        "for word; do case $word in --screenshot=*) echo drawn > \"${word#--screenshot=}\";; esac; done";
    let path = stand_in(&dir, "chromium", draws);
    std::fs::write(dir.path("secret"), "root's\n").expect("a file");
    std::fs::create_dir(dir.path("desk")).expect("a folder");
    std::os::unix::fs::chown(dir.path("desk"), Some(user), Some(user)).expect("root gives away");
    // The user guesses the process id, and with it the name of a temporary file.
    let lay = format!("link=.tompion-view.$$.png; ln -s ../secret $link; chown -h {user} $link; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &lay, "sh", TOMPION, "view", "--png", "picture.png"]).arg(dir.path("trace"));
    command.current_dir(dir.path("desk")).env("PATH", &path).env_remove("SUDO_UID").env_remove("SUDO_GID");
    let output = command.output().expect("the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(dir.path("secret")).expect("root's file"), "root's\n");
    assert_eq!(std::fs::read_to_string(dir.path("desk/picture.png")).expect("a picture"), "drawn\n");
}

#[test]
fn a_picture_has_the_range_tracks_and_size_that_were_asked_for() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    dir.record(&[], &[&hello]);
    let draws =
        "for word; do case $word in --screenshot=*) echo \"$@\" > \"${word#--screenshot=}\";; esac; done";
    let path = stand_in(&dir, "chromium", draws);
    let picture = dir.path("picture.png");
    let save = |options: &[&str]| {
        let mut command = tompion();
        command.arg("view").arg("--png").arg(&picture).args(options).arg(dir.path("trace"));
        command.env("PATH", &path).output().expect("the command")
    };
    let drawn = |options: &[&str]| {
        let output = save(options);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(&picture).expect("a picture")
    };
    let plain = drawn(&[]);
    assert!(
        plain.contains("--window-size=1600,900") && plain.trim_end().ends_with("#png=1600x900"),
        "{plain}"
    );
    let sized = drawn(&["--size", "1280x720", "--from", "1", "--to", "4000000000", "--track", "hello"]);
    assert!(sized.contains("--window-size=1280,720"), "{sized}");
    let (_, link) = sized.trim_end().rsplit_once('#').expect("a link");
    let range = link.strip_prefix("png=1280x720&v=").and_then(|rest| rest.split_once("&p=thread%3A"));
    let (range, tid) = range.unwrap_or_else(|| panic!("a range and a thread in {link}"));
    let (from, to) = range.split_once(',').expect("two times");
    let time = |text: &str| text.parse::<i64>().expect("nanoseconds");
    // The page reads numbers up to 2^53.
    assert!(time(from) < time(to) && time(to) < 1 << 53 && time(from) > -(1 << 53), "{range}");
    assert!(tid.parse::<u32>().is_ok(), "{link}");
    assert_eq!(
        drawn(&["--track", tid]).trim_end().rsplit_once('#').unwrap().1,
        format!("png=1600x900&p=thread%3A{tid}")
    );
    assert!(drawn(&["--dark"]).trim_end().ends_with("#png=1600x900,dark"));
    for (options, line) in [
        (&["--track", "nosuch"][..], "no track of the trace is named `nosuch`, by name, pid or tid"),
        (&["--from", "5", "--to", "4"], "expected --from before --to, found no time between them"),
        (&["--to", "5", "--from", "4"], "the trace has no event between --from and --to"),
        (&["--size", "12x7"], "expected a size such as 1280x720, each side from 400 to 16384"),
    ] {
        let output = save(options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(line), "{said}");
    }
}
