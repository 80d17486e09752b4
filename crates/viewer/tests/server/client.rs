//! A server for a test, and what asks it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tompion_viewer::{Config, Server};

/// Time after which a test gives up. No test measures time by this.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// An answer.
pub struct Reply {
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// A folder with a trace and a cache beside it, gone after the test.
pub struct TestDir {
    folder: TempDir,
}

impl TestDir {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Copies a trace of the corpus, which is not in the repository; `None` if it is missing.
    pub fn corpus(name: &str) -> Option<Self> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/ctf-corpus")).join(name);
        if !folder.is_dir() {
            eprintln!("SKIPPED, {} is not there", folder.display());
            return None;
        }
        let dir = Self::new();
        copy(&folder, &dir.trace());
        Some(dir)
    }

    /// A copy of the trace that the guide walks through.
    pub fn late() -> Self {
        let dir = Self::new();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/late-trace"), &dir.trace());
        dir
    }

    pub fn open(&self) -> Client {
        Client::open(&[self.trace()], &self.cache())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            // Without the permissions of the original, which may be read-only.
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Traces that are shown at any port.
pub fn config(paths: &[PathBuf], cache: &Path) -> Config {
    let listen = "127.0.0.1:0".parse().unwrap();
    Config { paths: paths.to_vec(), listen, cache: Some(cache.into()), say: |line| eprintln!("{line}") }
}

/// Client of a server.
pub struct Client {
    pub host: String,
    pub token: String,
}

impl Client {
    /// Starts a server, which ends with the program.
    pub fn open(paths: &[PathBuf], cache: &Path) -> Self {
        let server = Arc::new(Server::bind(&config(paths, cache)).expect("a server"));
        let url = server.url();
        let (host, token) = url.strip_prefix("http://").and_then(|url| url.split_once("/?token=")).unwrap();
        let client = Self { host: host.into(), token: token.into() };
        thread::spawn(move || server.run());
        client
    }

    /// Sends a request as it stands.
    pub fn send(&self, request: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        Reply { status, headers: lines.map(header).collect(), body: bytes[end + 4..].to_vec() }
    }

    /// Asks for a path with its parameters, with the token.
    pub fn ask(&self, path: &str) -> Reply {
        let sign = if path.contains('?') { '&' } else { '?' };
        let (host, token) = (&self.host, &self.token);
        self.send(
            &format!("GET {path}{sign}token={token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            b"",
        )
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        let sign = if path.contains('?') { '&' } else { '?' };
        let (host, token, length) = (&self.host, &self.token, body.len());
        let head = format!(
            "POST {path}{sign}token={token} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(&head, body.as_bytes())
    }

    /// The JSON of an answer that is one.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.ask(path);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{path}: {text}");
        answer.json()
    }

    /// `/api/trace` as soon as something is true of it.
    pub fn trace_when(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let trace = self.get("/api/trace");
            if is_so(&trace) {
                return trace;
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "it never came to it: {trace}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `/api/trace` when everything is known.
    pub fn trace(&self) -> Value {
        self.trace_when(|trace| trace["progress"] == 1.0)
    }

    /// Numbers of the lanes of a kind, in the order of tracks.
    pub fn lanes(&self, kind: &str) -> Vec<u64> {
        let tracks = self.get("/api/tracks");
        let tracks = tracks["tracks"].as_array().unwrap().clone();
        let lanes = tracks.iter().filter_map(|track| track["lanes"].as_array()).flatten();
        lanes.filter(|lane| lane["kind"] == kind).map(|lane| lane["id"].as_u64().unwrap()).collect()
    }

    /// Returns the contents of lanes: boxes as begin, end, style, label and count; points and bins
    /// as their four numbers.
    pub fn drawn(&self, query: &str) -> Value {
        let answer = self.ask(&format!("/api/lanes?{query}"));
        assert_eq!(answer.status, 200, "{query}: {}", String::from_utf8_lossy(&answer.body));
        let (length, rest) = answer.body.split_first_chunk::<4>().unwrap();
        let (head, mut rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let mut value: Value = serde_json::from_slice(head).unwrap();
        let mut take = |bytes: usize| {
            let (taken, left) = rest.split_at(bytes);
            rest = left;
            taken
        };
        let floats =
            |bytes: &[u8]| bytes.chunks(8).map(|it| f64::from_le_bytes(it.try_into().unwrap())).collect();
        let mut lanes = Vec::new();
        for lane in value["lanes"].as_array().unwrap() {
            let (shape, count) = (lane[1].as_str().unwrap(), lane[2].as_u64().unwrap() as usize);
            let mut numbers: Vec<Value> = Vec::new();
            if shape == "boxes" {
                let times: Vec<f64> = floats(take(16 * count));
                let (labels, counts, styles) = (take(4 * count), take(4 * count), take(count));
                take(count.next_multiple_of(8) - count);
                for at in 0..count {
                    let four = |bytes: &[u8]| i32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
                    numbers.extend([times[2 * at], times[2 * at + 1]].map(|time| Value::from(time as i64)));
                    numbers.extend([styles[at].into(), four(labels).into(), four(counts).into()]);
                }
            } else {
                let all: Vec<f64> = floats(take(32 * count));
                numbers.extend(all.into_iter().map(|number| Value::from(number as i64)));
            }
            lanes.push(serde_json::json!({ "id": lane[0], shape: numbers }));
        }
        assert!(rest.is_empty(), "{} bytes too many", rest.len());
        value["lanes"] = lanes.into();
        value
    }

    /// The boxes of a lane: begin, end, style, label, count.
    pub fn boxes(&self, lane: u64, (from, to): (i64, i64), width: u32) -> Vec<(i64, i64, i64, String, i64)> {
        let answer = self.drawn(&format!("ids={lane}&from={from}&to={to}&width={width}"));
        let label = |number: &Value| match number.as_i64().unwrap() {
            -1 => String::new(),
            number => answer["labels"][number as usize].as_str().unwrap().to_owned(),
        };
        let numbers = answer["lanes"][0]["boxes"].as_array().unwrap();
        let number = |value: &Value| value.as_i64().unwrap();
        let one = |five: &[Value]| {
            (number(&five[0]), number(&five[1]), number(&five[2]), label(&five[3]), number(&five[4]))
        };
        numbers.chunks(5).map(one).collect()
    }
}
