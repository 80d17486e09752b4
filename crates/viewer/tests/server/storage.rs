//! Files that are kept beside a trace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use tompion_index::size_estimate;
use tompion_viewer::Server;

use crate::client::{Client, TestDir, config};
use crate::fixtures::{self, Fields, TestEvent};

/// All that is drawn of a made-up trace.
fn picture(client: &Client) -> (Value, Value, Value) {
    client.trace();
    let lanes = "ids=0,1,2,3,4,5,6,7&from=0&to=5000&width=500";
    let mut tracks = client.get("/api/tracks");
    tracks["generation"] = Value::Null;
    (tracks, client.drawn(lanes), client.get("/api/select?from=0&to=5000"))
}

fn notes(client: &Client) -> Value {
    client.get("/api/notes")["notes"].take()
}

fn version(client: &Client) -> Value {
    client.get("/api/notes")["version"].take()
}

/// Writes notes based on the current version; returns the status.
fn write_notes(client: &Client, notes: Value) -> u16 {
    let written = json!({ "version": version(client), "notes": notes });
    client.post("/api/notes", &written.to_string()).status
}

/// Waits until there is an index, which is kept a moment after everything is known.
fn wait_for_index(dir: &TestDir) -> Vec<u8> {
    let path = dir.trace().join(".tompion-view/index");
    for _ in 0..2000 {
        if let Ok(bytes) = fs::read(&path) {
            return bytes;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no index in {}", path.display());
}

#[test]
fn the_index_is_kept_and_read_again() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let first = picture(&dir.open());
    let kept = wait_for_index(&dir);
    assert_eq!(picture(&dir.open()), first);
    assert_eq!(wait_for_index(&dir), kept, "it was not made again");
    // Also by another name of the folder.
    let moved = dir.trace().with_file_name("moved");
    fs::rename(dir.trace(), &moved).unwrap();
    assert_eq!(Client::open(&[moved.join(".")], &dir.cache()).get("/api/trace")["progress"], 1.0);
    fs::rename(&moved, dir.trace()).unwrap();
    assert_eq!(wait_for_index(&dir), kept, "it was not made again");
    // Another trace at the same place has another index.
    fixtures::write(&dir.trace(), &fixtures::story("a longer name"));
    let changed = dir.open();
    assert_ne!(picture(&changed), first);
}

#[test]
fn a_hostile_index_is_made_again() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let first = picture(&dir.open());
    let kept = wait_for_index(&dir);
    let path = dir.trace().join(".tompion-view/index");
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), b"tompview".to_vec(), kept[..kept.len() / 2].to_vec()];
    for place in (0..kept.len()).step_by(kept.len() / 40 + 1) {
        let mut bytes = kept.clone();
        bytes[place] ^= 0x55;
        damaged.push(bytes);
    }
    for number in [8, 16, 24, 32] {
        let mut bytes = kept.clone();
        bytes[number..number + 8].fill(0xff);
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let client = dir.open();
        client.trace();
        // Entries may be others than they were, which no sum guards; nothing may fail.
        assert_eq!(client.get("/api/tracks")["tracks"], first.0["tracks"]);
        client.ask("/api/lanes?ids=0,1,2,3,4,5,6,7&from=0&to=5000&width=500");
        client.ask("/api/select?from=0&to=5000");
        client.ask("/api/at?lane=0&time=1600");
    }
}

/// Mounts a file system of this size; false where that is not permitted, which is said.
fn mount(folder: &Path, size: &str) -> bool {
    fs::create_dir_all(folder).unwrap();
    let size = format!("size={size}");
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", &size, "tompion-test"]).arg(folder).output();
    let is_mounted = mount.is_ok_and(|mount| mount.status.success());
    if !is_mounted {
        eprintln!("SKIPPED, no disk can be mounted here");
    }
    is_mounted
}

fn unmount(folder: &Path) {
    Command::new("umount").arg("--lazy").arg(folder).output().unwrap();
}

/// Writer of a trace into a folder.
type WriteTrace = fn(&Path);

#[test]
fn an_estimate_is_at_most_twice_the_index() {
    let traces: [(&str, WriteTrace); 5] = [
        ("kernel", |folder| fixtures::turns(folder, 120_000)),
        ("many threads", |folder| fixtures::write(folder, &fixtures::crowd(80_000))),
        ("program", |folder| fixtures::callbacks(folder, 120_000)),
        ("small events", |folder| fixtures::steps(folder, 600_000)),
        ("tiny", |folder| fixtures::write(folder, &fixtures::story("worker"))),
    ];
    for (name, write) in traces {
        let dir = TestDir::new();
        write(&dir.trace());
        let set = tompion_reader::open(&[dir.trace()]).unwrap();
        let estimate = size_estimate::estimate(&set).unwrap();
        dir.open().trace();
        let size = wait_for_index(&dir).len() as u64;
        println!("{name}: {estimate} bytes expected, {size} written");
        assert!(size <= estimate && estimate <= 2 * size + (320 << 10), "{name}: {estimate}, {size}");
    }
}

#[test]
fn an_index_that_fits_stays_beside_its_trace() {
    let dir = TestDir::new();
    if !mount(&dir.trace(), "10M") {
        return;
    }
    // Half of it is not free, and the index takes less.
    fixtures::callbacks(&dir.trace(), 120_000);
    let remark =
        Server::bind(&config(&[dir.trace()], &dir.cache())).map(|server| server.remark().map(str::to_owned));
    dir.open().trace();
    let size = wait_for_index(&dir).len();
    unmount(&dir.trace());
    assert_eq!(remark.unwrap(), None);
    assert!(size < 2 << 20, "{size}");
}

#[test]
fn a_disk_with_too_little_room_gets_no_index() {
    let dir = TestDir::new();
    if !mount(&dir.trace(), "256k") {
        return;
    }
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let open = || Server::bind(&config(&[dir.trace()], &dir.cache())).unwrap();
    let remark = open().remark().unwrap_or_default().to_owned();
    let (first, second) = (picture(&dir.open()), picture(&dir.open()));
    let in_cache = || {
        let folders = fs::read_dir(dir.cache().join("tompion/view")).into_iter().flatten().flatten();
        folders.into_iter().any(|folder| folder.path().join("index").exists())
    };
    while !in_cache() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // It is found there the next time.
    let again = open().remark().map(str::to_owned);
    let is_beside = dir.trace().join(".tompion-view/index").exists();
    unmount(&dir.trace());
    assert!(remark.contains("the index takes up to 1 MiB; it is in ") && !remark.contains('\n'), "{remark}");
    assert!(remark.contains(&*dir.cache().canonicalize().unwrap().to_string_lossy()), "{remark}");
    assert_eq!((first, again, is_beside), (second, None, false));
}

#[test]
fn a_link_or_a_file_is_no_folder_for_it() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let elsewhere = dir.cache().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, dir.trace().join(".tompion-view")).unwrap();
    let first = picture(&dir.open());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "a link is not followed");
    let server = Server::bind(&config(&[dir.trace()], &dir.cache())).unwrap();
    let remark = server.remark().unwrap();
    assert!(remark.contains("found a link") && !remark.contains('\n'), "{remark}");
    fs::remove_file(dir.trace().join(".tompion-view")).unwrap();
    // Where nothing can be written beside the trace, the cache has it.
    fs::write(dir.trace().join(".tompion-view"), "").unwrap();
    let client = dir.open();
    assert_eq!(picture(&client), first);
    assert_eq!(write_notes(&client, json!([{ "time": 5, "text": "here" }])), 200);
    assert!(dir.cache().join("tompion/view").is_dir());
    assert_eq!(notes(&dir.open())[0]["text"], "here");
    let kept = client.trace()["kept"].as_str().unwrap().to_owned();
    assert!(kept.starts_with(&*dir.cache().canonicalize().unwrap().to_string_lossy()), "{kept}");
}

#[test]
fn notes_are_kept_beside_the_trace() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    assert_eq!(notes(&client), json!([]));
    let note = json!({ "time": 1500, "end": 1700, "text": "<script>alert(1)</script>", "track": 3 });
    assert_eq!(write_notes(&client, json!([note])), 200);
    let written = notes(&dir.open());
    assert_eq!(written[0]["text"], "<script>alert(1)</script>");
    assert_eq!(written[0]["end"], 1700);
    assert!(dir.trace().join(".tompion-view/notes.json").is_file());
    let kept = client.trace()["kept"].as_str().unwrap().to_owned();
    assert!(kept.ends_with("/trace/.tompion-view"), "{kept}");
}

#[test]
fn notes_find_their_tracks_again_whatever_numbers_these_have() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let number_of = |client: &Client, tid: i64| {
        let tracks = client.get("/api/tracks");
        let tracks = tracks["tracks"].as_array().unwrap().clone();
        tracks.iter().find(|track| track["tid"] == tid).unwrap()["id"].as_u64().unwrap()
    };
    let (worker, late) = (number_of(&client, 7), number_of(&client, 8));
    let of_late = json!({ "time": 1500, "text": "why?", "track": late });
    assert_eq!(write_notes(&client, json!([of_late, { "time": 1, "text": "", "track": worker }])), 200);
    // The same threads, but the other one comes first; and everything is 500 ns later.
    let before = dir.trace().join(".tompion-view/notes.json");
    let kept = fs::read(&before).unwrap();
    let other = TestDir::new();
    let first = [
        TestEvent(500, Fields::Waking("late".into(), 8)),
        TestEvent(900, Fields::Waking("early".into(), 70)),
    ];
    fixtures::write(&other.trace(), &[fixtures::packet(&first, 0), fixtures::story("worker")].concat());
    other.open().trace();
    fs::write(other.trace().join(".tompion-view/notes.json"), kept).unwrap();
    let client = other.open();
    client.trace();
    assert_ne!(number_of(&client, 7), worker, "or else the test says nothing");
    let found = notes(&client);
    assert_eq!(found[0]["track"], number_of(&client, 8));
    assert_eq!(found[1]["track"], number_of(&client, 7));
    // The base is the first event: it was at 1000, and is at 500.
    assert_eq!((&found[0]["time"], &found[1]["time"]), (&2000.into(), &501.into()));
    // What the page hands back is kept, also while its track is not known.
    let of = found[0]["of"].clone();
    assert_eq!(write_notes(&client, json!([{ "time": 7, "text": "", "of": of }])), 200);
    assert_eq!(notes(&client)[0]["track"], number_of(&client, 8));
}

#[test]
fn notes_that_others_wrote_meanwhile_are_not_lost() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    // Two servers of one trace, for two users.
    let (one, other) = (dir.open(), dir.open());
    let read = version(&one);
    assert_eq!(write_notes(&other, json!([{ "time": 1, "text": "theirs" }])), 200);
    let mine = json!({ "version": read, "notes": [{ "time": 2, "text": "mine" }] }).to_string();
    let refused = one.post("/api/notes", &mine);
    assert_eq!(refused.status, 409);
    let line = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(line.contains("others have written notes") && !line.contains('\n'), "{line}");
    assert_eq!(notes(&one)[0]["text"], "theirs");
    // Notes based on the current version may be written; the answer has the new version.
    let both = json!([{ "time": 1, "text": "theirs" }, { "time": 2, "text": "mine" }]);
    let answer = one.post("/api/notes", &json!({ "version": version(&one), "notes": both }).to_string());
    assert_eq!((answer.status, answer.json()["version"].clone()), (200, version(&other)));
    assert_eq!(notes(&other)[1]["text"], "mine");
    // Without a version, the write does not say what it replaces.
    assert_eq!(one.post("/api/notes", "[]").status, 400);
}

#[test]
fn damaged_notes_are_reported_and_renamed() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    assert_eq!(write_notes(&client, json!([{ "time": 1, "text": "dear" }])), 200);
    let folder = dir.trace().join(".tompion-view");
    let whole = fs::read(folder.join("notes.json")).unwrap();
    for name in ["notes.json.damaged", "notes.json.damaged.2"] {
        fs::write(folder.join("notes.json"), &whole[..whole.len() - 3]).unwrap();
        let answer = client.get("/api/notes");
        let remark = answer["remark"].as_str().unwrap();
        assert!(remark.contains("damaged") && !remark.contains('\n'), "{remark}");
        assert_eq!(answer["notes"], json!([]));
        let written = json!({ "version": answer["version"], "notes": [] }).to_string();
        let remark = client.post("/api/notes", &written).json()["remark"].clone();
        assert!(remark.as_str().unwrap().contains(name), "{remark}");
        assert_eq!(fs::read(folder.join(name)).unwrap(), whole[..whole.len() - 3]);
        assert_eq!(client.get("/api/notes")["remark"], Value::Null);
    }
}

#[test]
fn where_no_trace_is_nothing_is_made() {
    let dir = TestDir::new();
    for path in [dir.trace(), dir.trace().join("typo")] {
        assert!(Server::bind(&config(std::slice::from_ref(&path), &dir.cache())).is_err());
        assert!(!path.exists() && !dir.cache().exists(), "{}", path.display());
    }
    // Nor beside nothing: a folder that is there, but has no trace, stays as it is.
    fs::create_dir(dir.trace()).unwrap();
    assert!(Server::bind(&config(&[dir.trace()], &dir.cache())).is_err());
    assert_eq!(fs::read_dir(dir.trace()).unwrap().count(), 0);
}
