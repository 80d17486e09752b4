//! Names of segments: host, boot, session, chunk, file, sequence number. They come from other
//! machines, so each part is checked before it becomes part of a path.
//!
//! ```text
//! /v1/robot-7/3f1c…/night-5a0c91d2/chunk-000003/user/server-4711/stream_0/17
//!     host    boot  session        chunk        file                      sequence number
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::recording::{OPEN, WHOLE, is_chunk};

/// Maximum length of a label in bytes: file names have at most 255, and get suffixes.
const MAX_LABEL: usize = 200;
/// Maximum number of labels of a file's path.
pub const MAX_DEPTH: usize = 8;
/// Maximum length of a file's path in bytes.
const MAX_PATH: usize = 800;
/// Largest sequence number; it has 12 digits in names of objects.
const MAX_SEQUENCE: u64 = 999_999_999_999;
/// Version of the protocol, the first part of each name.
const VERSION: &str = "v1";

/// Name that is refused, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(String);

fn refuse<T>(expected: &str, found: &str) -> Result<T, NameError> {
    let found: String = found.chars().take(80).collect();
    Err(NameError(format!("expected {expected}, found {found:?}")))
}

/// One part of a name. It is a file name: no separator, no control character, not hidden.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

impl Label {
    /// Takes a text as a label.
    ///
    /// # Errors
    /// If it is empty, too long, hidden, or has separators or control characters.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let is_plain = |character: char| !character.is_control() && character != '/' && character != '\\';
        match text {
            "" => refuse("a name", text),
            text if text.len() > MAX_LABEL => refuse("a name of at most 200 bytes", text),
            text if text.starts_with(['.', '@']) => refuse("a name that begins with no `.` or `@`", text),
            text if !text.chars().all(is_plain) => refuse("a name without separators", text),
            text => Ok(Self(text.to_owned())),
        }
    }

    /// Makes a label of any text: characters that can't be in one become `_`.
    pub fn approximate(text: &str) -> Self {
        let plain = |character: char| match character {
            '/' | '\\' => '_',
            character if character.is_control() => '_',
            character => character,
        };
        let mut label: String = text.chars().map(plain).collect();
        while label.len() > MAX_LABEL {
            label.pop();
        }
        if label.is_empty() || label.starts_with(['.', '@']) {
            label.insert(0, '_');
            label = label.chars().take(MAX_LABEL / 4).collect();
        }
        Self(label)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for Label {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

/// Path of a file below a chunk's folder: labels with `/` between them. Two names are reserved for
/// the end of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(String);

impl FilePath {
    /// Name of the segment that commits a chunk.
    pub const COMMIT: &'static str = "@commit";
    /// Name of the segment that says that a chunk was removed before all of it was sent.
    pub const DROPPED: &'static str = "@dropped";

    /// The path of the segment that commits a chunk.
    pub fn commit() -> Self {
        Self(Self::COMMIT.into())
    }

    /// The path of the segment that says that a chunk was removed.
    pub fn dropped() -> Self {
        Self(Self::DROPPED.into())
    }

    /// Whether it is one of the reserved names.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with('@')
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits it into folders, and the file's name.
    pub fn split(&self) -> (Option<&str>, &str) {
        self.0.rsplit_once('/').map_or((None, &self.0), |(folder, name)| (Some(folder), name))
    }
}

impl FromStr for FilePath {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if matches!(text, Self::COMMIT | Self::DROPPED) {
            return Ok(Self(text.into()));
        }
        if text.len() > MAX_PATH || text.split('/').count() > MAX_DEPTH {
            return refuse("a path of at most 8 names and 800 bytes", text);
        }
        text.split('/').try_for_each(|part| Label::new(part).map(drop))?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for FilePath {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<FilePath> for String {
    fn from(path: FilePath) -> Self {
        path.0
    }
}

/// Place of a session: host, boot, session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionPlace {
    /// Name of the machine.
    pub host: Label,
    /// Id of its boot.
    pub boot: Label,
    /// Name of the recording.
    pub session: Label,
}

impl SessionPlace {
    /// Parses the path of a request, decoded.
    ///
    /// # Errors
    /// If a part is missing, or refused.
    pub fn parse(path: &str) -> Result<Self, NameError> {
        match &parts_of(path)?[..] {
            [host, boot, session] => session_place(host, boot, session),
            _ => refuse("/v1/HOST/BOOT/SESSION", path),
        }
    }

    fn to_path(&self) -> String {
        let Self { host, boot, session } = self;
        encode(&[VERSION, host.as_str(), boot.as_str(), session.as_str()])
    }

    /// Folder below a store, of three names.
    pub fn folder(&self) -> String {
        format!("host={}/boot={}/session={}", self.host, self.boot, self.session)
    }
}

impl fmt::Display for SessionPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.host, self.boot, self.session)
    }
}

/// Place of a chunk: a session, and the chunk in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The session.
    pub session: SessionPlace,
    /// Name of the chunk.
    pub chunk: Label,
}

impl Place {
    /// Path of the request for the chunk's state.
    pub fn to_path(&self) -> String {
        format!("{}{}", self.session.to_path(), encode(&[self.chunk.as_str()]))
    }

    /// Name of a segment of the chunk.
    pub fn name(&self, file: FilePath, sequence: u64) -> Name {
        Name { place: self.clone(), file, sequence }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.session, self.chunk)
    }
}

/// Name of a segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The chunk.
    pub place: Place,
    /// File of the chunk.
    pub file: FilePath,
    /// Sequence number within the file, from 1 on.
    pub sequence: u64,
}

impl Name {
    /// Path of its request, percent-encoded.
    pub fn to_path(&self) -> String {
        let parts: Vec<&str> = self.file.as_str().split('/').collect();
        format!("{}{}/{}", self.place.to_path(), encode(&parts), self.sequence)
    }

    /// Name of its object in a store of objects: numbers sort as texts do.
    pub fn to_key(&self) -> String {
        format!("{}{:012}", self.place.key_of(&self.file), self.sequence)
    }

    /// Parses the path of a request, decoded.
    ///
    /// # Errors
    /// If a part is missing, or refused.
    pub fn parse(path: &str) -> Result<Self, NameError> {
        match Target::parse(path)? {
            Target::Segment(name) => Ok(name),
            _ => refuse("/v1/HOST/BOOT/SESSION/CHUNK/FILE/SEQUENCE", path),
        }
    }

    /// Parses the path of a file's request, without a sequence number.
    ///
    /// # Errors
    /// If a part is missing, or refused.
    pub fn parse_file(path: &str) -> Result<(Place, FilePath), NameError> {
        let parts = parts_of(path)?;
        let [host, boot, session, chunk, file @ ..] = &parts[..] else {
            return refuse("/v1/HOST/BOOT/SESSION/CHUNK/FILE", path);
        };
        let place = Place { session: session_place(host, boot, session)?, chunk: chunk_label(chunk)? };
        let file = file_of(&place, file)?;
        Ok((place, file))
    }
}

impl Place {
    /// Begin of the names of a chunk's objects.
    pub fn to_prefix(&self) -> String {
        format!("{VERSION}/{}/{}/", self.session.folder(), self.chunk)
    }

    /// Begin of the names of a file's objects.
    pub fn key_of(&self, file: &FilePath) -> String {
        format!("{}{file}/", self.to_prefix())
    }
}

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Chunk(Place),
    Segment(Name),
}

impl Target {
    fn parse(path: &str) -> Result<Self, NameError> {
        let parts = parts_of(path)?;
        match &parts[..] {
            [host, boot, session, chunk] => Ok(Self::Chunk(Place {
                session: session_place(host, boot, session)?,
                chunk: chunk_label(chunk)?,
            })),
            [host, boot, session, chunk, file @ .., sequence] if !file.is_empty() => {
                let place =
                    Place { session: session_place(host, boot, session)?, chunk: chunk_label(chunk)? };
                let file = file_of(&place, file)?;
                Ok(Self::Segment(place.name(file, number(sequence)?)))
            }
            _ => refuse("/v1/HOST/BOOT/SESSION…", path),
        }
    }
}

impl Place {
    /// Parses the path of a request, decoded.
    ///
    /// # Errors
    /// If a part is missing, or refused.
    pub fn parse(path: &str) -> Result<Self, NameError> {
        match Target::parse(path)? {
            Target::Chunk(place) => Ok(place),
            _ => refuse("/v1/HOST/BOOT/SESSION/CHUNK", path),
        }
    }
}

/// Parts of a request's path behind the version.
fn parts_of(path: &str) -> Result<Vec<&str>, NameError> {
    let Some(rest) = path.strip_prefix('/').and_then(|path| path.strip_prefix(VERSION)?.strip_prefix('/'))
    else {
        return refuse("/v1/…", path);
    };
    Ok(rest.split('/').take(MAX_DEPTH + 6).collect())
}

fn session_place(host: &str, boot: &str, session: &str) -> Result<SessionPlace, NameError> {
    Ok(SessionPlace { host: Label::new(host)?, boot: Label::new(boot)?, session: Label::new(session)? })
}

/// Takes a text as the name of a chunk: one of the recording's, or that of files in none. No other
/// folder can be a chunk's, so none can be written to under two names.
fn chunk_label(text: &str) -> Result<Label, NameError> {
    if text == WHOLE || is_chunk(text) && !text.ends_with(OPEN) {
        return Label::new(text);
    }
    refuse("`whole` or chunk-NUMBER", text)
}

/// Path of a file of a chunk. Files in no chunk's folder are in none of a chunk.
fn file_of(place: &Place, parts: &[&str]) -> Result<FilePath, NameError> {
    match parts.first() {
        Some(first) if place.chunk.as_str() == WHOLE && is_chunk(first) => {
            refuse("a file in no chunk's folder", first)
        }
        _ => parts.join("/").parse(),
    }
}

fn number(text: &str) -> Result<u64, NameError> {
    let number = text.parse().ok().filter(|number: &u64| text == number.to_string());
    match number.filter(|number| (1..=MAX_SEQUENCE).contains(number)) {
        Some(number) => Ok(number),
        None => refuse("a sequence number from 1 on", text),
    }
}

/// Joins parts with `/` before each, percent-encoded.
fn encode(parts: &[&str]) -> String {
    let mut path = String::new();
    for part in parts {
        path.push('/');
        for &byte in part.as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => {
                    path.push(char::from(byte));
                }
                other => path.push_str(&format!("%{other:02X}")),
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_and_keys() {
        let name = Name::parse("/v1/robot 7/boot/night/chunk-000003/user/server-1/stream_0/17").unwrap();
        assert_eq!(name.file.split(), (Some("user/server-1"), "stream_0"));
        assert_eq!(name.to_path(), "/v1/robot%207/boot/night/chunk-000003/user/server-1/stream_0/17");
        let key = "v1/host=robot 7/boot=boot/session=night/chunk-000003/user/server-1/stream_0/000000000017";
        assert_eq!(name.to_key(), key);
        let commit = Name::parse("/v1/h/b/s/whole/@commit/1").unwrap();
        assert!(commit.file.is_reserved());
        assert_eq!(Place::parse("/v1/h/b/s/whole").unwrap(), commit.place);
        assert_eq!(Name::parse_file("/v1/h/b/s/whole/a/b").unwrap().1.as_str(), "a/b");
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(201);
        let deep = "a/".repeat(8) + "a";
        for part in [
            "..",
            ".",
            "",
            ".hidden",
            "a/../b",
            "a//b",
            "/etc/passwd",
            "a\0b",
            "a\nb",
            "a\\b",
            "@x",
            &long,
            &deep,
        ] {
            assert!(part.parse::<FilePath>().is_err(), "{part:?}");
            let path = format!("/v1/h/b/s/whole/{part}/1");
            assert!(Name::parse(&path).is_err(), "{path:?}");
        }
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v2/h/b/s/whole/f/1",
            "/v1/h/b/s/../f/1",
            "/v1/../b/s/c/f/1",
            "/v1/h/b/s/whole/f/0",
            "/v1/h/b/s/whole/f/-1",
            "/v1/h/b/s/whole/f/01",
            "/v1/h/b/s/whole/f/+1",
            "/v1/h/b/s/whole/f/9999999999999",
            "/v1/h/b/s/whole/1",
            "/v1/h/b/s/user/f/1",
            "/v1/h/b/s/chunk-000001.open/f/1",
            "/v1/h/b/s/whole/chunk-000001/f/1",
            "/v1/h/b/s/whole/chunk-000001.open/f/1",
            "/v1/h/b/s/whole/chunk-000001/1",
        ] {
            assert!(Name::parse(path).is_err(), "{path:?}");
        }
        for text in ["", "..", "a/b", "@commit", "a\u{1b}[31m", &long] {
            let label = Label::approximate(text);
            assert_eq!(Label::new(label.as_str()).as_ref(), Ok(&label), "{text:?}");
        }
    }
}
