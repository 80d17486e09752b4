//! What is kept beside a trace.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::client::{Client, Desk};
use crate::made_up::{self, Made, What};

/// All that is drawn of a made-up trace.
fn picture(client: &Client) -> (Value, Value, Value) {
    client.trace();
    let lanes = "ids=0,1,2,3,4,5,6,7&from=0&to=5000&width=500";
    let mut tracks = client.get("/api/tracks");
    tracks["generation"] = Value::Null;
    (tracks, client.drawn(lanes), client.get("/api/select?from=0&to=5000"))
}

/// Waits until there is an index, which is kept a moment after everything is known.
fn wait_for_index(desk: &Desk) -> Vec<u8> {
    let path = desk.trace().join(".tompion-view/index");
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
    let desk = Desk::new();
    made_up::write(&desk.trace(), &made_up::story("worker"));
    let first = picture(&desk.open());
    let kept = wait_for_index(&desk);
    assert_eq!(picture(&desk.open()), first);
    assert_eq!(wait_for_index(&desk), kept, "it was not made again");
    // Also by another name of the folder.
    let moved = desk.trace().with_file_name("moved");
    fs::rename(desk.trace(), &moved).unwrap();
    assert_eq!(Client::open(&[moved.join(".")], &desk.cache()).get("/api/trace")["progress"], 1.0);
    fs::rename(&moved, desk.trace()).unwrap();
    assert_eq!(wait_for_index(&desk), kept, "it was not made again");
    // Another trace at the same place has another index.
    made_up::write(&desk.trace(), &made_up::story("a longer name"));
    let changed = desk.open();
    assert_ne!(picture(&changed), first);
}

#[test]
fn a_hostile_index_is_made_again() {
    let desk = Desk::new();
    made_up::write(&desk.trace(), &made_up::story("worker"));
    let first = picture(&desk.open());
    let kept = wait_for_index(&desk);
    let path = desk.trace().join(".tompion-view/index");
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
        let client = desk.open();
        client.trace();
        // Entries may be others than they were, which no sum guards; nothing may fail.
        assert_eq!(client.get("/api/tracks")["tracks"], first.0["tracks"]);
        client.ask("/api/lanes?ids=0,1,2,3,4,5,6,7&from=0&to=5000&width=500");
        client.ask("/api/select?from=0&to=5000");
        client.ask("/api/at?lane=0&time=1600");
    }
}

#[test]
fn a_link_or_a_file_is_no_folder_for_it() {
    let desk = Desk::new();
    made_up::write(&desk.trace(), &made_up::story("worker"));
    let elsewhere = desk.cache().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, desk.trace().join(".tompion-view")).unwrap();
    let first = picture(&desk.open());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "a link is not followed");
    let config = tompion_viewer::Config {
        paths: vec![desk.trace()],
        listen: "127.0.0.1:0".parse().unwrap(),
        cache: Some(desk.cache()),
    };
    let server = tompion_viewer::Server::bind(&config).unwrap();
    let remark = server.remark().unwrap();
    assert!(remark.contains("found a link") && !remark.contains('\n'), "{remark}");
    fs::remove_file(desk.trace().join(".tompion-view")).unwrap();
    // Where nothing can be written beside the trace, the cache has it.
    fs::write(desk.trace().join(".tompion-view"), "").unwrap();
    let client = desk.open();
    assert_eq!(picture(&client), first);
    assert_eq!(client.post("/api/notes", "[{\"time\":5,\"text\":\"here\"}]").status, 200);
    assert!(desk.cache().join("tompion/view").is_dir());
    assert_eq!(desk.open().get("/api/notes")[0]["text"], "here");
}

#[test]
fn notes_are_kept_beside_the_trace() {
    let desk = Desk::new();
    made_up::write(&desk.trace(), &made_up::story("worker"));
    let client = desk.open();
    assert_eq!(client.get("/api/notes"), serde_json::json!([]));
    let notes = "[{\"time\":1500,\"end\":1700,\"text\":\"<script>alert(1)</script>\",\"track\":3}]";
    assert_eq!(client.post("/api/notes", notes).status, 200);
    let written = desk.open().get("/api/notes");
    assert_eq!(written[0]["text"], "<script>alert(1)</script>");
    assert_eq!(written[0]["end"], 1700);
    assert!(desk.trace().join(".tompion-view/notes.json").is_file());
}

#[test]
fn notes_find_their_tracks_again_whatever_numbers_these_have() {
    let desk = Desk::new();
    made_up::write(&desk.trace(), &made_up::story("worker"));
    let client = desk.open();
    client.trace();
    let number_of = |client: &Client, tid: i64| {
        let tracks = client.get("/api/tracks");
        let tracks = tracks["tracks"].as_array().unwrap().clone();
        tracks.iter().find(|track| track["tid"] == tid).unwrap()["id"].as_u64().unwrap()
    };
    let (worker, late) = (number_of(&client, 7), number_of(&client, 8));
    let notes = format!(
        "[{{\"time\":1500,\"text\":\"why?\",\"track\":{late}}},{{\"time\":1,\"text\":\"\",\"track\":{worker}}}]"
    );
    assert_eq!(client.post("/api/notes", &notes).status, 200);
    // The same threads, but the other one comes first; and everything is 500 ns later.
    let before = desk.trace().join(".tompion-view/notes.json");
    let kept = fs::read(&before).unwrap();
    let other = Desk::new();
    let first = [Made(500, What::Waking("late".into(), 8)), Made(900, What::Waking("early".into(), 70))];
    made_up::write(&other.trace(), &[made_up::packet(&first, 0), made_up::story("worker")].concat());
    other.open().trace();
    fs::write(other.trace().join(".tompion-view/notes.json"), kept).unwrap();
    let client = other.open();
    client.trace();
    assert_ne!(number_of(&client, 7), worker, "or else the test says nothing");
    let found = client.get("/api/notes");
    assert_eq!(found[0]["track"], number_of(&client, 8));
    assert_eq!(found[1]["track"], number_of(&client, 7));
    // The base is the first event: it was at 1000, and is at 500.
    assert_eq!((&found[0]["time"], &found[1]["time"]), (&2000.into(), &501.into()));
    // What the page hands back is kept, also while its track is not known.
    let of = found[0]["of"].clone();
    let notes = serde_json::json!([{ "time": 7, "text": "", "of": of }]).to_string();
    assert_eq!(client.post("/api/notes", &notes).status, 200);
    assert_eq!(client.get("/api/notes")[0]["track"], number_of(&client, 8));
}
