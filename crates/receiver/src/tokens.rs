//! Tokens of senders and readers. The file has their hashes, so it gives no access.
//!
//! ```text
//! # SHA-256 of the token, rights, hosts
//! 9f86d081…0a08 write        robot-*
//! 60303ae2…7ef9 read,live    *
//! ```

use std::{fs::File, io::Read, path::Path};

use sha2::{Digest, Sha256};
use tompion_os::DirHandle;
use tompion_segments::Checksum;

/// Largest file of tokens that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Right that a token gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Segments may be sent, and states read.
    Write,
    /// Traces may be read.
    Read,
    /// Running recordings may be followed.
    Live,
}

impl Right {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "write" => Some(Self::Write),
            "read" => Some(Self::Read),
            "live" => Some(Self::Live),
            _ => None,
        }
    }
}

/// Reason why tokens can't be used, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

/// Tokens and their rights.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, Debug)]
struct Token {
    hash: Checksum,
    rights: Vec<Right>,
    hosts: String,
}

/// Hash of a token as files have it.
fn hash(token: &str) -> Checksum {
    Checksum(Sha256::digest(token.as_bytes()).into())
}

/// Makes a token with some rights for some hosts, and adds its hash to a file, which is made if it
/// isn't there. Returns the token, which is nowhere else.
///
/// # Errors
/// If the rights are none, or the file can't be written.
pub fn make_token(file: &Path, rights: &str, hosts: &str) -> Result<String, TokenError> {
    let mut random = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| TokenError(format!("/dev/urandom: {error}")))?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("{} {rights} {hosts}\n", hash(&token));
    Tokens::parse(&line).map_err(TokenError)?;
    let in_words = |error: std::io::Error| TokenError(format!("{}: {error}", file.display()));
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().ok_or_else(|| TokenError("expected the name of a file".into()))?;
    let folder = DirHandle::open(parent).map_err(in_words)?;
    let mut opened = folder.append(name).map_err(in_words)?;
    std::io::Write::write_all(&mut opened, line.as_bytes()).map_err(in_words)?;
    Ok(token)
}

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// If it can't be read, or a line is wrong.
    pub fn read(file: &Path) -> Result<Self, TokenError> {
        let in_words = |error: String| TokenError(format!("{}: {error}", file.display()));
        let mut text = String::new();
        let opened = File::open(file).map_err(|error| in_words(error.to_string()))?;
        opened.take(MAX_FILE).read_to_string(&mut text).map_err(|error| in_words(error.to_string()))?;
        Self::parse(&text).map_err(in_words)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let token = |(number, line): (usize, &str)| {
            let wrong = || format!("line {}: expected HASH write,read,live HOSTS", number + 1);
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [hash, rights, hosts] = words[..] else { return Err(wrong()) };
            let rights: Option<Vec<Right>> = rights.split(',').map(Right::parse).collect();
            let hash = Checksum::parse(hash).ok_or_else(wrong)?;
            Ok(Token { hash, rights: rights.ok_or_else(wrong)?, hosts: hosts.into() })
        };
        lines.map(token).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a token gives a right on a host's recordings. `None`: there is no such token.
    pub fn allow(&self, token: &str, right: Right, host: &str) -> Option<bool> {
        // Hashes are compared, so time tells nothing of a token.
        let hash = hash(token);
        let token = self.0.iter().find(|token| token.hash == hash)?;
        Some(token.rights.contains(&right) && matches(&token.hosts, host))
    }
}

/// Whether a name is one of a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, rest)) => {
            let Some(behind) = name.strip_prefix(begin) else { return false };
            let places = behind.char_indices().map(|(at, _)| at).chain([behind.len()]);
            places.into_iter().any(|at| matches(rest, &behind[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn tokens_give_their_rights_on_their_hosts() {
        let dir = TestDir::new("tokens");
        let file = dir.join("tokens");
        let writer = make_token(&file, "write", "robot-*").unwrap();
        let reader = make_token(&file, "read,live", "*").unwrap();
        let tokens = Tokens::read(&file).unwrap();
        assert_eq!(tokens.allow(&writer, Right::Write, "robot-7"), Some(true));
        assert_eq!(tokens.allow(&writer, Right::Write, "cloud"), Some(false));
        assert_eq!(tokens.allow(&writer, Right::Read, "robot-7"), Some(false));
        assert_eq!(tokens.allow(&reader, Right::Live, "robot-7"), Some(true));
        assert_eq!(tokens.allow("guess", Right::Read, "robot-7"), None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&writer) && !text.contains(&reader), "only hashes are kept");
        assert!(make_token(&file, "root", "*").is_err());
        assert!(Tokens::parse("12 write *").unwrap_err().contains("line 1"));
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abd", false),
            ("a", "ab", false),
            ("*-7*", "r-7", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
