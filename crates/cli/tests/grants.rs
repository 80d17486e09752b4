//! Root's supervisor and users with grants: what they get, what they don't, and attacks. Needs
//! root, which can be several users.

use std::{
    fs,
    io::BufRead as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    supervisor::{Supervisor, pid},
    support::{Finished, TestDir, beside, run, signal, wait_until},
};

/// Group that one grant is for.
const GROUP: u32 = 46_999;

/// A user that no other test has.
#[derive(Clone, Copy)]
struct TestUser {
    id: u32,
    groups: &'static [u32],
}

impl TestUser {
    fn new(groups: &'static [u32]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Tests of other runs may go on beside this one.
        let of_run = 47_000 + std::process::id() % 500 * 32;
        Self { id: of_run + NEXT.fetch_add(1, Ordering::Relaxed), groups }
    }
}

/// A supervisor with grants, and its users.
struct Machine<'dir> {
    dir: &'dir TestDir,
    supervisor: Supervisor<'dir>,
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED, only root can be several users");
    }
    is_root
}

/// Writes a file of grants.
fn grant(dir: &TestDir, name: &str, text: &str) {
    let path = dir.path("grants").join(name);
    make(&dir.path("grants"), None);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
}

/// Makes a folder that all can look into, a user's or root's.
fn make(path: &Path, user: Option<u32>) {
    fs::create_dir_all(path).expect("a folder");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
    user.into_iter().for_each(|user| chown(path, Some(user), Some(user)).expect("an owner"));
}

impl<'dir> Machine<'dir> {
    fn start(dir: &'dir TestDir) -> Self {
        for name in ["", "grants", "join", "users"] {
            make(&dir.path(name), None);
        }
        Self { dir, supervisor: Supervisor::start(dir) }
    }

    /// The user's home.
    fn home(&self, user: TestUser) -> PathBuf {
        let home = self.dir.path("users").join(user.id.to_string());
        make(&home, Some(user.id));
        home
    }

    /// A command as a user.
    fn command_of(&self, user: TestUser, program: &Path) -> Command {
        let groups: Vec<String> = user.groups.iter().map(u32::to_string).collect();
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={}", user.id), format!("--regid={}", user.id)]);
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.arg(format!("--groups={}", groups.join(","))),
        };
        let home = self.home(user);
        command.arg(program).current_dir(&home).env("HOME", &home);
        command.env("TOMPION_SESSIONS", home.join("sessions")).env("TOMPION_SYSTEM", self.dir.path("system"));
        command.env("TOMPION_SOCKET", self.dir.path("join")).env_remove("XDG_CONFIG_HOME");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn tompion(&self, user: TestUser, arguments: &[&str]) -> Finished {
        let program = self.dir.tompion(&[]);
        run(self.command_of(user, Path::new(program.get_program())).args(arguments))
    }

    /// Describes a session in a user's files, with an output that is the user's.
    fn describe(&self, user: TestUser, name: &str, text: &str) {
        let home = self.home(user);
        make(&home.join("sessions"), Some(user.id));
        let output = home.join("traces");
        let text = format!("output = \"{}\"\n{text}", output.display());
        fs::write(home.join("sessions").join(format!("{name}.toml")), text).expect("a file");
    }

    /// Applies a session that is to be refused; returns the reason.
    fn refused(&self, user: TestUser, text: &str) -> String {
        self.describe(user, "refused", text);
        let refused = self.tompion(user, &["apply", "--system", "refused"]).exited(1).err;
        assert_eq!(self.session(Some(user.id), "refused"), Value::Null, "{refused}");
        refused
    }

    /// A session as root sees it.
    fn session(&self, user: Option<u32>, name: &str) -> Value {
        let list = self.supervisor.list();
        let mut sessions = list["sessions"].as_array().cloned().unwrap_or_default().into_iter();
        sessions.find(|it| it["name"] == name && it["user"] == json!(user)).unwrap_or_default()
    }

    /// A user's sessions as the user sees them.
    fn sessions_of(&self, user: TestUser) -> Value {
        let shown = self.tompion(user, &["status", "--json"]);
        let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
        shown["system"]["sessions"].clone()
    }

    /// Starts a program that ticks, as a user, where recorders are found. It ends with its input.
    fn ticker(&self, user: TestUser, program: &Path) -> (Child, ChildStdin) {
        let as_user = self.command_of(user, program);
        let mut command = Command::new("nsenter");
        command.arg("--net").arg("--target").arg(self.supervisor.id().to_string());
        command.arg(as_user.get_program()).args(as_user.get_args());
        command.env("TOMPION_SOCKET", self.dir.path("join"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("nsenter");
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().expect("its words"));
        output.read_line(&mut line).expect("a word");
        assert_eq!(line, "ready\n");
        let input = child.stdin.take().expect("its input");
        (child, input)
    }
}

/// Folder of the trace of a session's only channel.
fn folder_of(session: &Value) -> PathBuf {
    session["channels"][0]["folder"].as_str().expect("a folder").into()
}

/// Owners of all that is in a folder.
fn owners(folder: &Path) -> Vec<u32> {
    let entries: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|it| it.expect("an entry").path()).collect();
    let below = entries.iter().filter(|path| path.is_dir()).flat_map(|path| owners(path));
    let own = [folder.to_owned()].into_iter().chain(entries.clone());
    below.chain(own.map(|path| fs::symlink_metadata(path).expect("an entry").uid())).collect()
}

/// Returns a value of a process's status.
fn status_of(process: u32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a key");
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn a_user_records_what_the_grant_says_and_nothing_else() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let [first, second, third, root] = [(); 4].map(|()| TestUser::new(&[]));
    let root = TestUser { id: 0, ..root };
    let text = format!("users = [{}]\nprograms.user = [{}]\nmemory = '64M'", first.id, second.id);
    grant(&dir, "10-first.toml", &text);
    let machine = Machine::start(&dir);
    let program = dir.link("granttick", &["ticker.c"], &[]);
    let tickers: Vec<_> =
        [first, second, third, root].iter().map(|user| machine.ticker(*user, &program)).collect();
    machine.describe(first, "flight", "programs = ['name=granttick*']\n[channel.main]\nmemory = '16M'");
    let applied = machine.tompion(first, &["apply", "--system", "flight"]).succeeded().err;
    assert!(applied.contains("flight: main: started, records into "), "{applied}");
    let recorded = || -> Vec<Value> {
        let shown = machine.tompion(first, &["status", "--json", "flight"]).succeeded().out;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["recordings"][0]["processes"].as_array().cloned().unwrap_or_default()
    };
    let has_events = |process: &Value| process["events"].as_u64().is_some_and(|events| events > 100);
    wait_until("events of both", || recorded().iter().filter(|it| has_events(it)).count() == 2);
    // Those that start later are judged, too.
    let later: Vec<_> = [third, second].iter().map(|user| machine.ticker(*user, &program)).collect();
    wait_until("events of three", || recorded().iter().filter(|it| has_events(it)).count() == 3);
    let mut pids: Vec<u64> = recorded().iter().filter_map(|it| it["pid"].as_u64()).collect();
    pids.sort_unstable();
    let mut expected = [&tickers[0], &tickers[1], &later[1]].map(|(child, _)| u64::from(child.id()));
    expected.sort_unstable();
    assert_eq!(pids, expected);
    // The user changes, looks and ends; the recorder has no right that it does not need.
    machine.tompion(first, &["rules", "flight", "-e", "ticker:tick"]).succeeded();
    let session = machine.session(Some(first.id), "flight");
    let recorder = pid(&session["channels"][0]);
    let bound = u64::from_str_radix(&status_of(recorder, "CapBnd"), 16).expect("a set");
    let for_kernel = [21, 24, 38, 39].map(|number| bound >> number & 1);
    assert_eq!((for_kernel, status_of(recorder, "NoNewPrivs").as_str()), ([0; 4], "1"));
    let environment = fs::read_to_string(format!("/proc/{recorder}/environ")).expect("an environment");
    assert!(!environment.contains("TOMPION_CONTROL") && !environment.contains("CARGO"), "{environment}");
    // Another user sees nothing of it, and root all.
    assert_eq!(machine.sessions_of(second), Value::Null, "it has no grant, and gets no connection");
    let refused = machine.tompion(second, &["stop", "flight"]).exited(1).err;
    assert!(refused.contains("no recording of this user is named flight"), "{refused}");
    assert_eq!(machine.sessions_of(first)[0]["channels"][0]["pid"], recorder);
    let stopped = machine.tompion(first, &["stop", "flight"]).succeeded().err;
    assert!(stopped.contains("flight has ended; next: tompion stat "), "{stopped}");
    let folder = folder_of(&session);
    assert!(owners(&folder).iter().all(|owner| *owner == first.id), "{}", folder.display());
    assert_eq!(fs::metadata(&folder).expect("a trace").mode() & 0o777, 0o700);
    assert!(dir.trace(folder.to_str().expect("a path")).events().len() > 300);
    for (mut child, input) in tickers.into_iter().chain(later) {
        drop(input);
        child.wait().expect("an end");
    }
    machine.supervisor.end().succeeded();
}

#[test]
fn what_is_not_granted_is_refused_with_what_it_needs() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let (user, member, stranger) = (TestUser::new(&[]), TestUser::new(&[GROUP]), TestUser::new(&[]));
    grant(&dir, "10-user.toml", &format!("users = [{}]\nmemory = '8M'\nsessions = 2", user.id));
    grant(&dir, "20-group.toml", &format!("users = ['@{GROUP}']\nmemory = '8M'"));
    let machine = Machine::start(&dir);
    let sound = "programs = ['name=grantnone']\n[channel.main]\nmemory = '4M'\n";
    for (text, expected) in [
        (format!("{sound}kernel = ['sched_*']"), "not permitted; it needs kernel = true in "),
        (sound.replace("4M", "9M"), "it needs 9437184 bytes of memory, and 8388608 are left of your grant"),
        (sound.replace("memory = '4M'", ""), "channel main: expected `memory`"),
        (sound.replace("name=grantnone", "uid=0"), "it needs user 0 in programs.user in "),
        (format!("start = 'boot'\n{sound}"), "expected start = \"demand\""),
        (format!("{sound}linger = '5s'"), "`linger` does not go with a grant"),
        (format!("{sound}trigger = ['external:now -> run /bin/true']"), "it needs commands = true in "),
        (format!("{sound}mode = 'sometimes\\u001b[2J'").replace('\'', "\""), "no control characters"),
    ] {
        let refused = machine.refused(user, &text);
        assert!(refused.contains(expected), "{text}: {refused}");
    }
    let refused = machine.refused(stranger, sound);
    let expected = format!("it needs a grant: a file in /etc/tompion/grants.d with user {}", stranger.id);
    assert!(refused.contains(&expected), "{refused}");
    // A group counts as the kernel knows it: no data base has this one.
    machine.describe(member, "one", sound);
    machine.tompion(member, &["apply", "--system", "one"]).succeeded();
    machine.tompion(member, &["stop", "one"]).succeeded();
    // Neither can a trigger be added later.
    machine.describe(member, "one", sound);
    machine.tompion(member, &["apply", "--system", "one"]).succeeded();
    let add = ["trigger", "one", "--add", "external:now -> run /bin/true"];
    let refused = machine.tompion(member, &add).exited(1).err;
    assert!(refused.contains("needs commands = true in the grant"), "{refused}");
    machine.tompion(member, &["stop", "one"]).succeeded();
    // What runs is counted; of channels that are replaced, those that come.
    let renamed = sound.replace("memory = '4M'", "memory = '8M'");
    for channel in ["b", "a", "c"] {
        machine.describe(user, "one", &renamed.replace("channel.main", &format!("channel.{channel}")));
        machine.tompion(user, &["apply", "--system", "one"]).succeeded();
        let running = machine.session(Some(user.id), "one")["channels"].as_array().map(Vec::len);
        assert_eq!(running, Some(1), "{channel}");
    }
    machine.tompion(user, &["stop", "one"]).succeeded();
    for (name, code) in [("one", 0), ("two", 0), ("three", 1)] {
        machine.describe(user, name, sound);
        let applied = machine.tompion(user, &["apply", "--system", name]).exited(code).err;
        assert!(code == 0 || applied.contains("it needs 1 sessions, and 0 are left"), "{applied}");
    }
    machine.tompion(user, &["stop", "two"]).succeeded();
    machine.describe(user, "three", &sound.replace("4M", "5M"));
    let refused = machine.tompion(user, &["apply", "--system", "three"]).exited(1).err;
    assert!(refused.contains("it needs 5242880 bytes of memory, and 4194304 are left"), "{refused}");
    machine.describe(user, "three", sound);
    machine.tompion(user, &["apply", "--system", "three"]).succeeded();
    // Root's own methods are root's, and root ends every session.
    let client = beside("programs/varlink_call.py");
    let call = |method: &str, parameters: Value| {
        let mut command = machine.command_of(user, Path::new("python3"));
        command.arg(&client).arg(dir.path("system/control")).arg(method).arg(parameters.to_string());
        serde_json::from_str::<Value>(&run(&mut command).succeeded().out).expect("a reply")
    };
    for (method, parameters) in [
        ("Create", json!({ "name": "mine", "session": {} })),
        ("Remove", json!({ "name": "mine" })),
        ("Apply", json!({ "name": "mine", "restart": false })),
    ] {
        let reply = call(method, parameters);
        assert_eq!(reply["error"], "io.tompion.Supervisor1.NotPermitted", "{reply}");
        assert_eq!(reply["parameters"], json!({ "needs": "root" }));
    }
    let other = call("Stop", json!({ "name": "one", "user": 0 }));
    assert_eq!(other["error"], "org.varlink.service.InvalidParameter");
    let control = dir.path("control/.supervisor/control");
    let mut direct = machine.command_of(user, Path::new("test"));
    run(direct.arg("-e").arg(control)).exited(1);
    for name in ["one", "three"] {
        let user = user.id.to_string();
        let stopped = machine.supervisor.command(&["stop", name, "--user", &user]).succeeded().err;
        assert!(stopped.contains(&format!("{name} has ended")), "{stopped}");
    }
    assert_eq!(machine.supervisor.list()["sessions"], json!([]));
    machine.supervisor.end().succeeded();
}

#[test]
fn what_a_user_lays_for_root_harms_nothing() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let (user, other) = (TestUser::new(&[]), TestUser::new(&[]));
    grant(&dir, "a.toml", &format!("users = [{}, {}]\nmemory = '64M'\ncommands = true", user.id, other.id));
    let machine = Machine::start(&dir);
    let sound = "programs = ['name=grantnone']\n[channel.main]\nmemory = '4M'\n";
    let apply = |user, name: &str| machine.tompion(user, &["apply", "--system", name]);
    // Links, and folders of others: the file system decides by the user's rights.
    let theirs = dir.path("roots");
    fs::create_dir(&theirs).expect("a folder");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).expect("a mode");
    let home = machine.home(user);
    symlink(&theirs, home.join("traces")).expect("a link");
    machine.describe(user, "linked", sound);
    let refused = apply(user, "linked").exited(1).err;
    assert!(refused.contains("can't create the folder"), "{refused}");
    let text = format!("output = '{}'\n{sound}", machine.home(other).display());
    fs::write(home.join("sessions/linked.toml"), text).expect("a file");
    let refused = apply(user, "linked").exited(1).err;
    assert!(refused.contains("can't create the folder"), "{refused}");
    assert_eq!(fs::read_dir(&theirs).expect("a folder").count(), 0);
    fs::remove_file(home.join("traces")).expect("a link");
    // A command of a trigger is the user's, and no set-user-ID program helps it.
    let script = home.join("note.sh");
    let lines = "#!/bin/sh\n(id -u; id -G; grep -h -e CapBnd -e NoNewPrivs /proc/self/status; env) > note\n";
    fs::write(&script, lines.replace("note\n", &format!("{}\n", home.join("note").display())))
        .expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    let trigger = format!("trigger = ['external:now -> run {}']", script.display());
    machine.describe(user, "hook", &format!("{sound}{trigger}"));
    apply(user, "hook").succeeded();
    machine.tompion(user, &["trigger", "hook", "now"]).succeeded();
    wait_until("the command", || {
        fs::read_to_string(home.join("note")).is_ok_and(|it| it.contains("TOMPION_TRACE="))
    });
    let note = fs::read_to_string(home.join("note")).expect("a note");
    assert!(note.starts_with(&format!("{0}\n{0}\n", user.id)), "{note}");
    assert!(note.contains("NoNewPrivs:\t1") && !note.contains("SUDO_") && !note.contains("CARGO"), "{note}");
    assert_eq!(fs::metadata(home.join("note")).expect("a note").uid(), user.id);
    // The user takes the recorder's socket away, and puts one there that accepts nothing.
    let sockets = PathBuf::from(format!("/tmp/tompion-{}-sessions", user.id));
    fs::rename(sockets.join("hook"), sockets.join("moved")).expect("a name");
    make(&sockets.join("hook"), Some(user.id));
    let listener = std::os::unix::net::UnixListener::bind(sockets.join("hook/control")).expect("a socket");
    machine.describe(user, "hook", &format!("{sound}{trigger}\nevents = ['a:*']"));
    let mut hangs = machine.command_of(user, Path::new(dir.tompion(&[]).get_program()));
    let mut hangs = hangs.args(["apply", "--system", "hook"]).stderr(Stdio::null()).spawn().expect("tompion");
    // Meanwhile others are served, and root ends the session without that socket.
    machine.describe(other, "hook", sound);
    apply(other, "hook").succeeded();
    let id = user.id.to_string();
    machine.supervisor.command(&["stop", "hook", "--user", &id]).succeeded();
    assert!(!hangs.wait().expect("its end").success());
    assert_eq!(machine.session(Some(user.id), "hook"), Value::Null, "what root has ended stays so");
    drop(listener);
    fs::remove_dir_all(&sockets).expect("sockets");
    // A crowd of connections: of the user's, four are kept.
    let mut crowd = machine.command_of(user, Path::new("python3"));
    crowd.arg(beside("programs/crowd_of_connections.py")).arg(dir.path("system/control")).arg("200");
    let mut crowd = crowd.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(crowd.stdout.take().expect("its words"));
    said.read_line(&mut line).expect("a word");
    assert_eq!(line, "ready\n");
    let descriptors =
        fs::read_dir(format!("/proc/{}/fd", machine.supervisor.id())).expect("a process").count();
    assert!(descriptors < 40, "{descriptors}");
    machine.tompion(other, &["stop", "hook"]).succeeded();
    drop(crowd.stdin.take());
    crowd.wait().expect("its end");
    machine.supervisor.end().succeeded();
}

#[test]
fn a_grant_that_is_lost_ends_what_runs_by_it() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let (user, other) = (TestUser::new(&[]), TestUser::new(&[]));
    let write = |users: &[u32], memory: &str| {
        grant(
            &dir,
            "a.toml",
            &format!("users = {users:?}\nprograms.user = [{}]\nmemory = '{memory}'", other.id),
        );
    };
    write(&[user.id, other.id], "8M");
    let machine = Machine::start(&dir);
    let sound = "programs = ['name=grantnone']\n[channel.main]\nmemory = '4M'\n";
    let apply = |machine: &Machine<'_>, user, name: &str| {
        machine.describe(user, name, sound);
        machine.tompion(user, &["apply", "--system", name])
    };
    for (user, name) in [(user, "a"), (user, "b"), (other, "a")] {
        apply(&machine, user, name).succeeded();
    }
    let state = |machine: &Machine<'_>, user: TestUser, name: &str| {
        machine.session(Some(user.id), name)["channels"][0]["state"].clone()
    };
    // Less memory: the later one of two goes, and says why.
    write(&[user.id, other.id], "5M");
    signal(machine.supervisor.id(), Signal::HUP);
    wait_until("an end", || state(&machine, user, "b") == "stopped");
    assert_eq!(
        (state(&machine, user, "a"), state(&machine, other, "a")),
        (json!("running"), json!("running"))
    );
    let sessions = machine.sessions_of(user);
    let failure = sessions[1]["channels"][0]["failure"].as_str().expect("a reason");
    assert!(failure.contains("it is beyond ") && failure.contains("a.toml"), "{failure}");
    // A file that others can write grants nothing; the supervisor says so, and goes on.
    let path = dir.path("grants/a.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("a mode");
    let checked = machine.supervisor.command(&["serve", "--check-grants"]).exited(1).err;
    assert!(checked.contains("a.toml: expected that others can't write it, found mode 0666"), "{checked}");
    write(&[user.id], "8M");
    let checked = machine.supervisor.command(&["serve", "--check-grants"]).succeeded().out;
    let expected = format!("a.toml: user {}: own programs, of user {}; 8388608 bytes", user.id, other.id);
    assert!(checked.contains(&expected), "{checked}");
    // The next supervisor takes over what is granted still, and ends the rest.
    let running = machine.session(Some(user.id), "a");
    machine.supervisor.kill();
    let machine = Machine { dir: &dir, supervisor: Supervisor::start(&dir) };
    wait_until("an end", || state(&machine, other, "a") != "running");
    assert_eq!(machine.session(Some(user.id), "a")["channels"][0]["pid"], running["channels"][0]["pid"]);
    let refused = apply(&machine, other, "a").exited(1).err;
    assert!(refused.contains("it needs a grant"), "{refused}");
    machine.tompion(user, &["stop", "a"]).succeeded();
    machine.supervisor.end().succeeded();
}

#[test]
fn kernel_events_are_recorded_by_a_grant_for_them() {
    if !is_root() || !crate::kernel::permitted() {
        return;
    }
    let dir = TestDir::new();
    let user = TestUser::new(&[]);
    grant(&dir, "a.toml", &format!("users = [{}]\nmemory = '64M'\nkernel = true", user.id));
    let machine = Machine::start(&dir);
    let session = "programs = ['name=grantnone']\n[channel.main]\nmemory = '8M'\nmode = 'overwrite'\n\
                   kernel = ['sched_process_exec']";
    machine.describe(user, "k", session);
    machine.tompion(user, &["apply", "--system", "k"]).succeeded();
    let recorder = machine.session(Some(user.id), "k");
    run(Command::new("true").arg("granted")).succeeded();
    let saved = machine.tompion(user, &["snapshot", "k"]).succeeded().err;
    assert!(saved.contains("tompion: saved "), "{saved}");
    let refused = machine.tompion(user, &["rules", "k", "-k", "kprobe:do_exit"]).exited(1).err;
    assert!(refused.contains("probes can't change"), "{refused}");
    machine.tompion(user, &["stop", "k"]).succeeded();
    let folder = folder_of(&recorder);
    assert!(owners(&folder).iter().all(|owner| *owner == user.id));
    let events = dir.trace(folder.to_str().expect("a path")).events();
    assert!(events.iter().any(|event| event.name == "sched_process_exec"), "{}", events.len());
    let text = session.replace("sched_process_exec", "kprobe:do_exit");
    let refused = machine.refused(user, &text);
    assert!(refused.contains("it needs probes = true in "), "{refused}");
    machine.supervisor.end().succeeded();
}
