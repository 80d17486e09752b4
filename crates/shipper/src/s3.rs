//! Stores of objects that speak S3's protocol, as targets: one object for each segment.
//!
//! A segment is put with `If-None-Match: *`, so an object is never replaced. What is there already
//! is compared by its header. Requests are signed by AWS Signature Version 4. Sources: Amazon S3
//! API Reference, "PutObject", "GetObject", "ListObjectsV2", and "Signature Version 4 signing
//! process".

use std::collections::BTreeMap;

use hmac::{Hmac, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tompion_segments::{
    Checksum, ChunkState, End, FilePath, FileState, HEADER_SIZE, Header, Kind, Name, Place, Segment,
};
use ureq::Agent;

use crate::{
    Target, Trouble,
    client::{self, Certificates, ClientError},
};

/// Digits of a sequence number in the name of an object.
const DIGITS: usize = 12;

/// Key of an account.
#[derive(Clone)]
pub struct Credentials {
    /// Its name.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// Token of a session, if the key is one for some time.
    pub session_token: Option<String>,
    /// Region, `us-east-1` where the store has none.
    pub region: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Bucket of a store, and the begin of the names in it.
#[derive(Debug)]
pub struct S3Target {
    agent: Agent,
    /// `https://HOST:PORT`.
    endpoint: String,
    host: String,
    bucket: String,
    prefix: String,
    credentials: Credentials,
}

/// A request that is to be signed.
struct Request<'a> {
    method: &'a str,
    /// Encoded path, from `/` on.
    path: String,
    /// Encoded query, sorted.
    query: String,
    /// Further headers: lower-case names, sorted.
    headers: Vec<(&'static str, String)>,
    body: &'a [u8],
}

impl S3Target {
    /// A bucket of the store at an address; `place` is `BUCKET` or `BUCKET/PREFIX`.
    ///
    /// # Errors
    /// If the address is none, or there is no bucket.
    pub fn new(
        endpoint: &str,
        place: &str,
        credentials: Credentials,
        certificates: &Certificates,
        connections: usize,
    ) -> Result<Self, ClientError> {
        let endpoint = endpoint.trim_end_matches('/');
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        let host = host.filter(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']));
        let Some(host) = host else { return Err(ClientError::Address(endpoint.into())) };
        let (bucket, prefix) =
            place.trim_matches('/').split_once('/').unwrap_or((place.trim_matches('/'), ""));
        if bucket.is_empty() {
            return Err(ClientError::Address(place.into()));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (endpoint, host, bucket) = (endpoint.to_owned(), host.to_owned(), bucket.to_owned());
        let agent = client::agent(certificates, connections);
        Ok(Self { agent, endpoint, host, bucket, prefix, credentials })
    }

    fn path_of(&self, key: &str) -> String {
        format!("/{}/{}", encode(&self.bucket, false), encode(&format!("{}{key}", self.prefix), true))
    }

    /// Sends a request with its signature.
    fn call(&self, request: &Request<'_>) -> Result<(u16, Vec<u8>), Trouble> {
        let (date, headers) = (amz_date(Timestamp::now()), &request.headers);
        let hash = hex(&Sha256::digest(request.body));
        let mut signed: BTreeMap<&str, &str> =
            headers.iter().map(|(name, value)| (*name, &**value)).collect();
        signed.extend([("host", &*self.host), ("x-amz-content-sha256", &hash), ("x-amz-date", &date)]);
        if let Some(token) = &self.credentials.session_token {
            signed.insert("x-amz-security-token", token);
        }
        let authorization = authorization(request, &signed, &hash, &date, &self.credentials);
        let separator = if request.query.is_empty() { "" } else { "?" };
        let uri = format!("{}{}{separator}{}", self.endpoint, request.path, request.query);
        let builder = ureq::http::Request::builder().method(request.method).uri(uri);
        let builder = signed
            .iter()
            .filter(|(name, _)| **name != "host")
            .fold(builder.header("authorization", authorization), |builder, (name, value)| {
                builder.header(*name, *value)
            });
        let wrong = |error: ureq::http::Error| Trouble::Broken(error.to_string());
        let result = match request.method {
            "PUT" => self.agent.run(builder.body(request.body).map_err(wrong)?),
            _ => self.agent.run(builder.body(()).map_err(wrong)?),
        };
        client::answer(result)
    }

    /// Header of the segment in an object.
    fn header(&self, key: &str, sequence: u64) -> Result<Header, Trouble> {
        let range = format!("bytes=0-{}", HEADER_SIZE - 1);
        let headers = vec![("range", range)];
        let request =
            Request { method: "GET", path: self.path_of(key), query: String::new(), headers, body: b"" };
        match self.call(&request)? {
            (200 | 206, body) => Header::read(&body, sequence)
                .map_err(|error| Trouble::Broken(format!("{key}: not a segment of Tompion's: {error}"))),
            (status, body) => Err(client::trouble(status, &body)),
        }
    }

    /// Names of objects that begin with a text, and where the list goes on.
    fn list(&self, prefix: &str, from: Option<&str>) -> Result<(Vec<String>, Option<String>), Trouble> {
        let token = from.map(|token| format!("continuation-token={}&", encode(token, false)));
        let query = format!(
            "{}encoding-type=url&list-type=2&prefix={}",
            token.unwrap_or_default(),
            encode(&format!("{}{prefix}", self.prefix), false)
        );
        let path = format!("/{}", encode(&self.bucket, false));
        match self.call(&Request { method: "GET", path, query, headers: Vec::new(), body: b"" })? {
            (200, body) => {
                let text = String::from_utf8_lossy(&body);
                // Stores that don't know the request's word send names as they are.
                let is_encoded = elements(&text, "EncodingType").next().as_deref() == Some("url");
                let keys = elements(&text, "Key").map(|key| if is_encoded { decode(&key) } else { key });
                let keys = keys.collect();
                let is_cut = elements(&text, "IsTruncated").next().as_deref() == Some("true");
                Ok((keys, elements(&text, "NextContinuationToken").next().filter(|_| is_cut)))
            }
            (status, body) => Err(client::trouble(status, &body)),
        }
    }

    /// Last contiguous sequence number of each file of a chunk.
    fn last_numbers(&self, place: &Place) -> Result<BTreeMap<FilePath, u64>, Trouble> {
        let prefix = place.to_prefix();
        let whole_prefix = format!("{}{prefix}", self.prefix);
        let (mut last, mut from) = (BTreeMap::<FilePath, u64>::new(), None);
        loop {
            let (keys, next) = self.list(&prefix, from.as_deref())?;
            for key in keys {
                let Some((file, number)) =
                    key.strip_prefix(&whole_prefix).and_then(|key| key.rsplit_once('/'))
                else {
                    continue;
                };
                let (Ok(file), Ok(number)) = (file.parse::<FilePath>(), number.parse::<u64>()) else {
                    continue;
                };
                let known = last.entry(file).or_default();
                // They come in order of their names, which have twelve digits.
                if number == *known + 1 && key.len() > DIGITS {
                    *known = number;
                }
            }
            match next {
                Some(token) => from = Some(token),
                None => return Ok(last),
            }
        }
    }
}

impl Target for S3Target {
    fn chunk_state(&self, place: &Place) -> Result<ChunkState, Trouble> {
        let mut state = ChunkState::default();
        for (file, sequence) in self.last_numbers(place)? {
            if sequence == 0 {
                continue;
            }
            if file.is_reserved() {
                let is_commit = file == FilePath::commit();
                state.end = Some(if is_commit { End::Committed } else { End::Dropped });
                continue;
            }
            let header = self.header(&place.name(file.clone(), sequence).to_key(), sequence)?;
            if matches!(header.kind, Kind::Packets | Kind::File) {
                state.files.insert(file, FileState { sequence, header });
            }
        }
        Ok(state)
    }

    fn put(&self, segment: &Segment) -> Result<(), Trouble> {
        let name: &Name = &segment.name;
        let body = segment.encode();
        let headers = vec![("if-none-match", "*".to_owned())];
        let path = self.path_of(&name.to_key());
        match self.call(&Request { method: "PUT", path, query: String::new(), headers, body: &body })? {
            (200 | 201, _) => Ok(()),
            // One is there. A lost answer is the usual reason.
            (412, _) if self.header(&name.to_key(), name.sequence)?.checksum == segment.header.checksum => {
                Ok(())
            }
            (412, body) => Err(client::trouble(412, &body)),
            // Another request for this object is under way.
            (409, _) => Err(Trouble::Refused("the store is busy with this object".into())),
            (status, body) => Err(client::trouble(status, &body)),
        }
    }

    /// A store of objects compares nothing.
    fn contents(&self, _: &Place) -> Result<BTreeMap<FilePath, Checksum>, Trouble> {
        Ok(BTreeMap::new())
    }
}

/// Time in the form of signatures: `20130524T000000Z`.
fn amz_date(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Value of the header `Authorization`.
fn authorization(
    request: &Request<'_>,
    signed: &BTreeMap<&str, &str>,
    hash: &str,
    date: &str,
    credentials: &Credentials,
) -> String {
    let names = signed.keys().copied().collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let Request { method, path, query, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{hash}");
    let day = date.get(..8).unwrap_or(date);
    let scope = format!("{day}/{}/s3/aws4_request", credentials.region);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let key = hmac(format!("AWS4{}", credentials.secret_key).as_bytes(), day);
    let key = [&*credentials.region, "s3", "aws4_request"].iter().fold(key, |key, part| hmac(&key, part));
    let signature = hex(&hmac(&key, &text));
    let access_key = &credentials.access_key;
    format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}")
}

/// Percent-encodes all but unreserved characters, and `/` where that separates names.
fn encode(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::new();
    for &byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if keeps_slashes => encoded.push('/'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Contents of all elements of a name that have no elements in them, in an answer of the store.
fn elements<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&begin)?;
        let (content, behind) = behind.split_once(&end)?;
        rest = behind;
        let plain = content.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        Some(plain.replace("&apos;", "'").replace("&amp;", "&"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Object" of "Examples: Signature Calculations in AWS Signature Version 4".
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
            region: "us-east-1".into(),
        };
        let hash = hex(&Sha256::digest(b""));
        let request = Request {
            method: "GET",
            path: "/test.txt".into(),
            query: String::new(),
            headers: vec![("range", "bytes=0-9".into())],
            body: b"",
        };
        let date = amz_date("2013-05-24T00:00:00Z".parse().unwrap());
        let signed = BTreeMap::from([
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", &*hash),
            ("x-amz-date", &*date),
        ]);
        let value = authorization(&request, &signed, &hash, &date, &credentials);
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(value.ends_with(signature), "{value}");
        assert!(value.contains("SignedHeaders=host;range;x-amz-content-sha256;x-amz-date"), "{value}");
        assert!(!format!("{credentials:?}").contains("wJalr"), "the secret is not shown");
    }

    #[test]
    fn names_are_encoded_and_read_from_lists() {
        assert_eq!(encode("a b/c=d+é", true), "a%20b/c%3Dd%2B%C3%A9");
        assert_eq!(decode("a%20b/c%3Dd%2B%C3%A9+e"), "a b/c=d+é e");
        assert_eq!(decode("%zz%"), "%zz%");
        let text = "<R><Key>a&amp;b</Key><x/><Key>c</Key><IsTruncated>true</IsTruncated></R>";
        assert_eq!(elements(text, "Key").collect::<Vec<_>>(), ["a&b", "c"]);
        assert_eq!(elements(text, "Other").next(), None);
    }
}
