//! Recordings are sent over links that break, to receivers and through them, and arrive whole.

mod fake_s3;
mod support;

use std::{
    fs,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread,
};

use support::{assert_same, breaking_link, options, receiver, stored, target, tree, write_recording};
use tompion_receiver::{Access, Store, StoreLimits, Tokens, make_certificates, make_token};
use tompion_segments::{Name, Segment};
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
    fn chunk_state(
        &self,
        place: &tompion_segments::Place,
    ) -> Result<tompion_segments::ChunkState, tompion_shipper::Trouble> {
        Ok(self.store.chunk_state(place).unwrap())
    }

    fn put(&self, segment: &Segment) -> Result<(), tompion_shipper::Trouble> {
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 && segment.name.sequence > 1 {
            *refusals -= 1;
            return Err(tompion_shipper::Trouble::Broken("the disk is full".into()));
        }
        drop(refusals);
        self.store
            .put(segment)
            .map(drop)
            .map_err(|error| tompion_shipper::Trouble::Conflict(error.to_string()))
    }
}

#[test]
fn given_a_store_of_objects_then_its_objects_are_the_recording() {
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
        S3Target::new(&endpoint, "bucket/site 3", credentials.clone(), &none, 4).unwrap()
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
        let path = key.strip_prefix("bucket/site 3/").unwrap().replace("host=", "").replace("boot=", "");
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
