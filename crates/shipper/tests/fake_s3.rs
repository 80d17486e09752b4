//! A store of objects that speaks as much of S3's protocol as a sender needs, and lists few keys at
//! a time.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Objects by bucket and key.
pub type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Keys of one answer.
const MAX_KEYS: usize = 5;

/// Serves objects for as long as the program runs.
pub fn serve(objects: Objects) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let objects = objects.clone();
            thread::spawn(move || while answer(&stream, &objects).is_some() {});
        }
    });
    address
}

fn answer(stream: &TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (method, target) = line.strip_suffix(" HTTP/1.1\r\n")?.split_once(' ')?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let is_signed = headers
        .get("authorization")
        .is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 Credential=key/"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = decode(path.strip_prefix('/')?);
    let mut objects = objects.lock().unwrap();
    let (status, content) = match method {
        _ if !is_signed => (403, Vec::new()),
        "PUT" if objects.contains_key(&key) => {
            (412, b"<Error><Code>PreconditionFailed</Code></Error>".to_vec())
        }
        "PUT" => {
            assert_eq!(headers["if-none-match"], "*");
            objects.insert(key, body);
            (200, Vec::new())
        }
        "GET" if query.contains("list-type=2") => (200, list(&objects, &key, query)),
        "GET" => match objects.get(&key) {
            Some(object) => (206, object[..64].to_vec()),
            None => (404, Vec::new()),
        },
        _ => (405, Vec::new()),
    };
    drop(objects);
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", content.len()).ok()?;
    stream.write_all(&content).ok()
}

fn list(objects: &BTreeMap<String, Vec<u8>>, bucket: &str, query: &str) -> Vec<u8> {
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| decode(value))
    };
    let prefix = format!("{bucket}/{}", parameter("prefix").unwrap());
    let from = parameter("continuation-token").unwrap_or_default();
    let found: Vec<&String> = objects.keys().filter(|key| key.starts_with(&prefix) && **key > from).collect();
    let shown = &found[..found.len().min(MAX_KEYS)];
    // Some stores don't know the word by which names are asked for encoded.
    let is_encoded = bucket != "plain";
    let key = |key: &&String| {
        let mut key = key.strip_prefix(&format!("{bucket}/")).unwrap().to_owned();
        if is_encoded {
            key = key.replace('%', "%25").replace(' ', "%20").replace('+', "%2B");
        }
        format!("<Contents><Key>{key}</Key></Contents>")
    };
    let keys: String = shown.iter().map(key).collect();
    let is_cut = shown.len() < found.len();
    let next = shown
        .last()
        .filter(|_| is_cut)
        .map(|key| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    let encoding = if is_encoded { "<EncodingType>url</EncodingType>" } else { "" };
    let next = next.unwrap_or_default();
    format!("<List>{encoding}{keys}<IsTruncated>{is_cut}</IsTruncated>{next}</List>").into_bytes()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap().as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}
