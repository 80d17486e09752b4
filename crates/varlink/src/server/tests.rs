//! A service is called as programs that are not ours would, and as hostile ones.

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
};

use serde_json::Map;
use tompion_testing::TestDir;

use super::*;
use crate::{Client, ClientError};

fn connect(path: &PathBuf) -> Client {
    Client::new(UnixStream::connect(path).expect("a service"), TIMEOUT)
}

const TIMEOUT: Duration = Duration::from_secs(30);

struct Echo {
    admitted: bool,
}

impl Service for Echo {
    fn identity(&self) -> Identity {
        Identity { product: "Echo", version: "1", url: "https://example.org" }
    }

    fn interface(&self) -> &'static str {
        "org.example.Echo"
    }

    fn description(&self) -> &'static str {
        "interface org.example.Echo\nmethod Say(text: string) -> (text: string)\n"
    }

    fn admit(&self, _caller: &Caller) -> Result<(), CallError> {
        if self.admitted { Ok(()) } else { Err(CallError::permission_denied()) }
    }

    fn call(&self, caller: &Caller, method: &str, call: &Call) -> Result<Value, CallError> {
        match method {
            "Say" => Ok(json!({ "text": call.parameters.get("text") })),
            "Peer" => Ok(json!({ "pid": caller.peer.pid })),
            _ => Err(CallError::method_not_found(&call.method)),
        }
    }

    fn subscribe(
        &self,
        _peer: Peer,
        method: &str,
        call: &Call,
    ) -> Option<Result<Receiver<Value>, CallError>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        match method {
            "Count" => {
                thread::spawn(move || {
                    (1..=3).try_for_each(|number| sender.send(json!({ "number": number })))
                });
                Some(Ok(receiver))
            }
            "Hold" => {
                // One reply, and none for ever: the connection is busy until it is closed.
                let _ = sender.send(json!({ "number": 0 }));
                std::mem::forget(sender);
                Some(Ok(receiver))
            }
            "Fail" => Some(Err(CallError::method_not_found(&call.method))),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Number {
    number: u32,
}

#[test]
fn a_subscriber_gets_replies_until_there_are_no_more() {
    let dir = TestDir::new("varlink");
    let path = start(&dir, true);
    let mut client = connect(&path);
    client.subscribe("org.example.Echo.Count", &json!({})).expect("sent");
    for number in 1..=3 {
        assert_eq!(client.next_reply::<Number>().expect("a reply").number, number);
    }
    assert!(matches!(client.next_reply::<Number>(), Err(ClientError::Closed)));
    let mut client = connect(&path);
    client.subscribe("org.example.Echo.Fail", &json!({})).expect("sent");
    assert!(matches!(client.next_reply::<Number>(), Err(ClientError::Refused(_))));
    assert_eq!(say(&mut client, "still here").expect("a reply"), json!({ "text": "still here" }));
}

fn start(dir: &TestDir, admitted: bool) -> PathBuf {
    let path = dir.join("socket");
    let server = Server::new(UnixListener::bind(&path).expect("a socket"), Arc::new(Echo { admitted }));
    thread::spawn(move || server.run());
    path
}

fn say(client: &mut Client, text: &str) -> Result<Value, ClientError> {
    client.call("org.example.Echo.Say", &json!({ "text": text }))
}

#[test]
fn a_service_answers_and_describes_itself() {
    let dir = TestDir::new("varlink");
    let mut client = connect(&start(&dir, true));
    assert_eq!(say(&mut client, "é").expect("a reply"), json!({ "text": "é" }));
    let peer: Value = client.call("org.example.Echo.Peer", &Value::Null).expect("a reply");
    assert_eq!(peer["pid"], std::process::id());
    let info: Value = client.call("org.varlink.service.GetInfo", &Value::Null).expect("a reply");
    assert_eq!(info["interfaces"], json!(["org.varlink.service", "org.example.Echo"]));
    let describe = |client: &mut Client, interface: &str| -> Result<Value, ClientError> {
        let parameters = json!({ "interface": interface });
        client.call("org.varlink.service.GetInterfaceDescription", &parameters)
    };
    for interface in ["org.varlink.service", "org.example.Echo"] {
        let text = describe(&mut client, interface).expect("a reply");
        let text = text["description"].as_str().expect("a text");
        assert!(text.contains(&format!("interface {interface}\n")), "{text}");
    }
    for (method, error) in [
        ("org.example.Echo.Nothing", "org.varlink.service.MethodNotFound"),
        ("org.example.Other.Say", "org.varlink.service.InterfaceNotFound"),
        ("Say", "org.varlink.service.InterfaceNotFound"),
        ("org.varlink.service.GetInterfaceDescription", "org.varlink.service.InvalidParameter"),
    ] {
        match client.call::<Value>(method, &Value::Null) {
            Err(ClientError::Refused(refused)) => assert_eq!(refused.name, error, "{method}"),
            other => panic!("{method}: {other:?}"),
        }
    }
}

#[test]
fn a_user_that_is_not_admitted_gets_one_line() {
    let dir = TestDir::new("varlink-refused");
    let mut client = connect(&start(&dir, false));
    // The refusal stands there before anything was asked; the call itself may meet a closed socket.
    match say(&mut client, "a") {
        Err(ClientError::Refused(refused)) => {
            assert_eq!(refused.name, "org.varlink.service.PermissionDenied");
        }
        Err(ClientError::Connection(_) | ClientError::Closed) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_and_silence_delay_no_other_client() {
    let dir = TestDir::new("varlink-garbage");
    let path = start(&dir, true);
    let mut silent = Vec::new();
    for index in 0..3 * MAX_CONNECTIONS {
        let mut stream = UnixStream::connect(&path).expect("a service");
        let garbage: &[u8] = match index % 4 {
            0 => b"",
            1 => b"{\"method\":",
            2 => b"\xff\xfe[]}{\0",
            _ => b"\0\0\0",
        };
        let _ = stream.write_all(garbage);
        silent.push(stream);
    }
    let mut client = connect(&path);
    for _ in 0..100 {
        assert_eq!(say(&mut client, "a").expect("a reply"), json!({ "text": "a" }));
    }
    // Garbage was answered by one error, and the end.
    let mut answered = 0;
    for stream in silent.iter_mut().skip(3 * MAX_CONNECTIONS - 8) {
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        answered += u32::from(text.starts_with(b"{\"error\":\"org.varlink.service.InvalidParameter\""));
    }
    assert_eq!(answered, 4);
}

#[test]
fn a_user_gets_a_share_of_the_connections_and_idle_ones_make_room() {
    let dir = TestDir::new("varlink-share");
    let path = dir.join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = Server::new(listener, Arc::new(Echo { admitted: true })).with_connections_per_user(2);
    thread::spawn(move || server.run());
    let hold = || {
        let mut client = connect(&path);
        client.subscribe("org.example.Echo.Hold", &json!({})).expect("sent");
        client.next_reply::<Number>().expect("a reply: it is busy");
        client
    };
    let _first = hold();
    let mut idle = connect(&path);
    assert!(say(&mut idle, "a").is_ok());
    let mut next = connect(&path);
    // The service may still be about to wait for the next call of the idle one.
    tompion_testing::wait_until("the idle one to make room", || {
        say(&mut next, "b").is_ok() || {
            next = connect(&path);
            false
        }
    });
    assert!(say(&mut idle, "c").is_err(), "it has made room");
    drop(next);
    let _second = hold();
    tompion_testing::wait_until("both to be busy", || say(&mut connect(&path), "d").is_err());
}

#[test]
fn calls_that_wait_are_answered_in_order_and_oneway_ones_not_at_all() {
    let dir = TestDir::new("varlink-order");
    let mut stream = UnixStream::connect(start(&dir, true)).expect("a service");
    let call = |text: &str, oneway: bool| {
        let parameters = Map::from_iter([("text".to_owned(), json!(text))]);
        encode(&Call { oneway, ..Call::new("org.example.Echo.Say", parameters) })
    };
    let all = [call("1", false), call("2", true), call("3", false)].concat();
    stream.write_all(&all).expect("room");
    stream.shutdown(Shutdown::Write).expect("open");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("replies");
    assert_eq!(replies, "{\"parameters\":{\"text\":\"1\"}}\0{\"parameters\":{\"text\":\"3\"}}\0");
}
