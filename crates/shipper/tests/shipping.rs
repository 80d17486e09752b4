//! Recordings are sent over links that break, to receivers and through them, and arrive whole.

mod fake_s3;
mod support;

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread,
};

use support::{
    assert_same, breaking_link, find_stored, options, receiver, stored, target, tree, write_recording,
};
use tompion_receiver::{Access, Store, StoreLimits, Tokens, make_certificates, make_token};
use tompion_segments::{Checksum, FilePath, Name, Place, Segment};
use tompion_shipper::{Certificates, Credentials, HttpTarget, Options, S3Target, ship};
use tompion_testing::{TestDir, rounds, wait_until};

fn quiet(_: &str) {}

#[test]
fn given_a_link_that_breaks_then_all_is_there_once() {
    for seed in 1..=rounds(3, 200) {
        let dir = TestDir::new("breaks");
        let (local, store) = (dir.join("night"), dir.join("store"));
        write_recording(&local, seed);
        let link =
            breaking_link(receiver(&store, Access::OwnUser, None), seed, Arc::new(AtomicBool::new(true)));
        let summary = ship(std::slice::from_ref(&local), &target(link), &options(), &quiet).unwrap();
        assert_eq!(summary.recordings, 1);
        assert_same(&local, &store);
        // One that was sent is not sent again.
        let again = ship(&[local], &target(link), &options(), &quiet).unwrap();
        assert_eq!((again.recordings, again.segments), (1, 0));
    }
}

#[test]
fn given_a_store_then_it_is_sent_on_to_the_next_receiver() {
    let dir = TestDir::new("hops");
    let (local, site, cloud) = (dir.join("night"), dir.join("site"), dir.join("cloud"));
    write_recording(&local, 5);
    let first = receiver(&site, Access::OwnUser, None);
    let second = receiver(&cloud, Access::OwnUser, None);
    // The second hop begins first, and waits.
    let (from, to) = (site.clone(), cloud.clone());
    let follow = Options { follow: true, ..options() };
    fs::create_dir_all(&from).unwrap();
    thread::spawn(move || ship(&[from], &target(second), &follow, &quiet));
    ship(std::slice::from_ref(&local), &target(first), &options(), &quiet).unwrap();
    assert_same(&local, &site);
    wait_until("the first file at the second hop", || support::find_stored(&to).is_some());
    wait_until("all files at the second hop", || tree(&stored(&cloud)).len() == tree(&local).len());
    wait_until("the same content", || tree(&stored(&cloud)) == tree(&local));
    // Names are those of the first sender.
    let name = |store| stored(store).file_name().unwrap().to_owned();
    assert_eq!(name(&site), name(&cloud));
    // It is committed there, and nothing is left to be sent.
    let journal = stored(&cloud).join(".segments/whole.journal");
    wait_until("the commit", || fs::read_to_string(&journal).unwrap().contains("@commit"));
    assert_eq!(ship(&[site], &target(second), &options(), &quiet).unwrap().segments, 0);
}

#[test]
fn given_tls_then_only_peers_with_certificates_and_tokens_are_served() {
    let dir = TestDir::new("certificates");
    let (local, store) = (dir.join("night"), dir.join("store"));
    write_recording(&local, 9);
    let [own, foreign] = ["own", "foreign"].map(|name| dir.join(name));
    for folder in [&own, &foreign] {
        make_certificates(folder, &["localhost".into(), "127.0.0.1".into()]).unwrap();
    }
    let tokens = dir.join("tokens");
    let token = make_token(&tokens, "write", "robot").unwrap();
    let access = Access::Tokens(Tokens::read(&tokens).unwrap());
    let port = receiver(&store, access, Some(&own)).port();
    let address = format!("https://localhost:{port}");
    let target = |certificates: &Certificates, token: Option<&str>| {
        HttpTarget::new(&address, certificates, token.map(Into::into), 4).unwrap()
    };
    let sound = Certificates::read(&own).unwrap();
    let wrong = Certificates::read(&foreign).unwrap();
    let without = Certificates::authorities(Some(&own.join("ca.pem"))).unwrap();
    let name = Name::parse("/v1/robot/boot/night/whole/x/1").unwrap();
    let segment = Segment::new(name, Segment::header(tompion_segments::Kind::File, 0, true), b"x".to_vec());
    for (certificates, token, expected) in [
        (&wrong, Some(&*token), ""),
        (&without, Some(&*token), ""),
        (&sound, None, "401"),
        (&sound, Some("guess"), "401"),
    ] {
        let trouble = tompion_shipper::Target::put(&target(certificates, token), &segment).unwrap_err();
        assert!(trouble.to_string().contains(expected), "{trouble}");
    }
    assert!(!store.join("host=robot").exists());
    ship(std::slice::from_ref(&local), &target(&sound, Some(&token)), &options(), &quiet).unwrap();
    assert_same(&local, &store);
}

#[test]
fn given_a_full_disk_then_sending_goes_on_when_it_has_room() {
    let dir = TestDir::new("room");
    let (local, store) = (dir.join("night"), dir.join("store"));
    write_recording(&local, 3);
    let opened = Store::open(&store, StoreLimits { min_free: 0, ..StoreLimits::default() }).unwrap();
    let said = Mutex::new(Vec::new());
    let target = HalfFull { store: &opened, refusals: Mutex::new(3) };
    ship(std::slice::from_ref(&local), &target, &options(), &|line| {
        said.lock().unwrap().push(line.to_owned())
    })
    .unwrap();
    assert_same(&local, &store);
    let said = said.into_inner().unwrap();
    assert!(
        said.iter().any(|line| line.contains("full"))
            && said.iter().any(|line| line.contains("sending again"))
    );
}

/// Store that refuses some segments, as a full disk does.
struct HalfFull<'a> {
    store: &'a Store,
    refusals: Mutex<u32>,
}

impl tompion_shipper::Target for HalfFull<'_> {
    fn chunk_state(&self, place: &Place) -> Result<tompion_segments::ChunkState, tompion_shipper::Trouble> {
        Ok(self.store.chunk_state(place).unwrap())
    }

    fn put(&self, segment: &Segment) -> Result<(), tompion_shipper::Trouble> {
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 && segment.name.sequence > 1 {
            *refusals -= 1;
            return Err(tompion_shipper::Trouble::Refused("the disk is full".into()));
        }
        drop(refusals);
        self.store
            .put(segment)
            .map(drop)
            .map_err(|error| tompion_shipper::Trouble::Conflict(error.to_string()))
    }

    fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, tompion_shipper::Trouble> {
        Ok(self.store.contents(place).unwrap())
    }
}

/// Store that refuses all of one recording.
struct Meddling<'a> {
    store: &'a Store,
    refuses: &'a str,
}

impl tompion_shipper::Target for Meddling<'_> {
    fn chunk_state(&self, place: &Place) -> Result<tompion_segments::ChunkState, tompion_shipper::Trouble> {
        Ok(self.store.chunk_state(place).unwrap())
    }

    fn put(&self, segment: &Segment) -> Result<(), tompion_shipper::Trouble> {
        let place = &segment.name.place;
        if !self.refuses.is_empty() && place.session.session.as_str().starts_with(self.refuses) {
            return Err(tompion_shipper::Trouble::Refused("no right".into()));
        }
        let taken = self.store.put(segment);
        taken.map(drop).map_err(|error| tompion_shipper::Trouble::Conflict(error.to_string()))
    }

    fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, tompion_shipper::Trouble> {
        Ok(self.store.contents(place).unwrap())
    }
}

fn open_store(folder: &std::path::Path) -> Store {
    Store::open(folder, StoreLimits { min_free: 0, ..StoreLimits::default() }).unwrap()
}

#[test]
fn given_a_recording_that_is_refused_for_good_then_others_are_sent() {
    let dir = TestDir::new("refused");
    for (name, seed) in [("a-refused", 1), ("b-sound", 2)] {
        write_recording(&dir.join("traces").join(name), seed);
    }
    let store_folder = dir.join("store");
    let opened = open_store(&store_folder);
    let follow = Options { follow: true, ..options() };
    let traces = dir.join("traces");
    // They end with the test's process.
    let opened: &'static Store = Box::leak(Box::new(opened));
    thread::spawn(move || {
        let target = Meddling { store: opened, refuses: "a-refused" };
        ship(&[traces], &target, &follow, &quiet)
    });
    wait_until("the sound one", || find_stored(&store_folder).is_some());
    wait_until("all of it", || tree(&stored(&store_folder)) == tree(&dir.join("traces/b-sound")));
}

#[test]
fn given_a_content_that_differs_unnoticed_then_it_is_sent_again() {
    let dir = TestDir::new("differs");
    let (local, store_folder) = (dir.join("night"), dir.join("store"));
    write_recording(&local, 6);
    // The receiver has another first part of a stream, and the same last one.
    let stream = local.join("user/a b+0/stream_0");
    let sound = fs::read(&stream).unwrap();
    let mut other = sound.clone();
    other[17] ^= 0xff;
    let opened = open_store(&store_folder);
    let manifest = fs::read_to_string(local.join("tompion.json")).unwrap();
    fs::write(local.join("tompion.json"), manifest.replace("complete", "recording")).unwrap();
    fs::write(&stream, &other).unwrap();
    let target = Meddling { store: &opened, refuses: "" };
    // All but the end, by a sender that is killed.
    let recording = tompion_segments::Recording::open(&local).unwrap();
    let look = recording.look(&|_| false).unwrap();
    let place = recording.chunk_place(&look.chunks[0].label);
    for file in &look.chunks[0].files {
        let mut cursor = tompion_segments::Cursor::default();
        while let Some(segment) = cursor.next(&place, file, true, tompion_segments::MAX_PIECE).unwrap() {
            opened.put(&segment).unwrap();
            cursor.advance(&segment);
        }
    }
    fs::write(&stream, &sound).unwrap();
    fs::write(local.join("tompion.json"), manifest).unwrap();
    ship(std::slice::from_ref(&local), &target, &options(), &quiet).unwrap();
    assert_same(&local, &store_folder);
}

#[test]
fn given_a_second_recording_at_a_path_then_it_is_sent_too() {
    let dir = TestDir::new("second");
    let (traces, store) = (dir.join("traces"), dir.join("store"));
    let address = receiver(&store, Access::OwnUser, None);
    let local = traces.join("night");
    write_recording(&local, 1);
    let (from, follow) = (traces.clone(), Options { follow: true, ..options() });
    thread::spawn(move || ship(&[from], &target(address), &follow, &quiet));
    let sessions = || support::find_sessions(&store);
    let is_whole = |folder: &std::path::Path, local: &std::path::Path| tree(folder) == tree(local);
    wait_until("the first one", || sessions().iter().any(|folder| is_whole(folder, &local)));
    fs::remove_dir_all(&local).unwrap();
    write_recording(&local, 2);
    let manifest = fs::read_to_string(local.join("tompion.json")).unwrap();
    fs::write(local.join("tompion.json"), manifest.replacen('{', r#"{"id":"another","#, 1)).unwrap();
    wait_until("the second one", || sessions().iter().any(|folder| is_whole(folder, &local)));
    assert_eq!(sessions().len(), 2);
}

#[test]
fn given_a_recording_that_is_removed_unsent_then_it_is_said_and_sending_ends() {
    let dir = TestDir::new("gone");
    let local = dir.join("night");
    write_recording(&local, 1);
    let manifest = fs::read_to_string(local.join("tompion.json")).unwrap();
    fs::write(local.join("tompion.json"), manifest.replace("complete", "recording")).unwrap();
    let opened = open_store(&dir.join("store"));
    let target = Meddling { store: &opened, refuses: "" };
    thread::scope(|scope| {
        let sent = scope.spawn(|| ship(std::slice::from_ref(&local), &target, &options(), &quiet));
        wait_until("a part of it", || find_stored(&dir.join("store")).is_some());
        fs::remove_dir_all(&local).unwrap();
        assert!(sent.join().unwrap().unwrap_err().contains("removed before all of it was sent"));
    });
}

#[test]
fn given_a_chunk_that_is_removed_while_it_is_sent_then_it_is_a_tombstone_and_never_a_commit() {
    for round in 0..rounds(8, 200) {
        let dir = TestDir::new("expires");
        let (local, store_folder) = (dir.join("night"), dir.join("store"));
        write_recording(&local, u64::from(round));
        let manifest = fs::read_to_string(local.join("tompion.json")).unwrap();
        let in_chunks = manifest.replacen('{', r#"{"in_chunks":true,"#, 1);
        for chunk in 1..=2 {
            let folder = local.join(format!("chunk-00000{chunk}"));
            write_recording(&folder, 50 + chunk);
        }
        fs::remove_dir_all(local.join("user")).unwrap();
        fs::write(local.join("tompion.json"), in_chunks).unwrap();
        let first = local.join("chunk-000001");
        let whole = tree(&first);
        let opened = open_store(&store_folder);
        let puts = std::sync::atomic::AtomicU32::new(0);
        let target = Counting { store: &opened, puts: &puts, at: round, first: &first, to: dir.join("gone") };
        ship(std::slice::from_ref(&local), &target, &options(), &quiet).unwrap();
        let place = support::find_sessions(&store_folder).remove(0);
        let journal = fs::read_to_string(place.join(".segments/chunk-000001.journal")).unwrap();
        match journal.contains("@commit") {
            true => assert!(tree(&place.join("chunk-000001")) == whole, "committed with less than all"),
            false => assert!(journal.contains("@dropped"), "{journal}"),
        }
    }
}

/// Store beside which a chunk is removed after so many segments.
struct Counting<'a> {
    store: &'a Store,
    puts: &'a std::sync::atomic::AtomicU32,
    at: u32,
    first: &'a std::path::Path,
    to: std::path::PathBuf,
}

impl tompion_shipper::Target for Counting<'_> {
    fn chunk_state(&self, place: &Place) -> Result<tompion_segments::ChunkState, tompion_shipper::Trouble> {
        Ok(self.store.chunk_state(place).unwrap())
    }

    fn put(&self, segment: &Segment) -> Result<(), tompion_shipper::Trouble> {
        if self.puts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == self.at {
            let _ = fs::rename(self.first, &self.to);
        }
        let taken = self.store.put(segment);
        taken.map(drop).map_err(|error| tompion_shipper::Trouble::Conflict(error.to_string()))
    }

    fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, tompion_shipper::Trouble> {
        Ok(self.store.contents(place).unwrap())
    }
}

#[test]
fn given_a_store_of_objects_then_its_objects_are_the_recording() {
    ["bucket", "plain"].into_iter().for_each(check_bucket);
}

fn check_bucket(bucket: &str) {
    let dir = TestDir::new("s3");
    let local = dir.join("night");
    write_recording(&local, 4);
    let objects = fake_s3::Objects::default();
    let address = fake_s3::serve(objects.clone());
    let link = breaking_link(address, 4, Arc::new(AtomicBool::new(true)));
    let credentials = Credentials {
        access_key: "key".into(),
        secret_key: "secret".into(),
        session_token: None,
        region: "us-east-1".into(),
    };
    let target = |credentials: &Credentials| {
        let (endpoint, none) = (format!("http://{link}"), Certificates::default());
        S3Target::new(&endpoint, &format!("{bucket}/site+3"), credentials.clone(), &none, 4).unwrap()
    };
    ship(std::slice::from_ref(&local), &target(&credentials), &options(), &quiet).unwrap();
    let again = ship(std::slice::from_ref(&local), &target(&credentials), &options(), &quiet).unwrap();
    assert_eq!(again.segments, 0);
    // The objects, in the order of their names, are taken by any receiver's store.
    let store_folder = dir.join("store");
    let store = Store::open(&store_folder, StoreLimits { min_free: 0, ..StoreLimits::default() }).unwrap();
    let objects = objects.lock().unwrap().clone();
    let mut commit = None;
    for (key, bytes) in &objects {
        let path =
            key.strip_prefix(&format!("{bucket}/site+3/")).unwrap().replace("host=", "").replace("boot=", "");
        let (file, sequence) = path
            .replace("session=", "")
            .rsplit_once('/')
            .map(|(file, number)| (file.to_owned(), number.trim_start_matches('0').to_owned()))
            .unwrap();
        let name = Name::parse(&format!("/{file}/{sequence}")).unwrap();
        let segment = Segment::decode(name, bytes).unwrap();
        match segment.name.file.is_reserved() {
            true => commit = Some(segment),
            false => drop(store.put(&segment).unwrap()),
        }
    }
    store.put(&commit.unwrap()).unwrap();
    assert_same(&local, &store_folder);
}
