//! Tompion's receiver as a target.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use tompion_segments::{Checksum, ChunkState, FilePath, Place, Segment};
use ureq::Agent;

use crate::{
    Target, Trouble,
    client::{self, Certificates, ClientError},
};

/// Receiver, by its address.
#[derive(Debug)]
pub struct HttpTarget {
    agent: Agent,
    address: String,
    token: Option<String>,
}

impl HttpTarget {
    /// A receiver at `https://HOST:PORT`, or `http://` where that is allowed.
    ///
    /// # Errors
    /// If the address is none.
    pub fn new(
        address: &str,
        certificates: &Certificates,
        token: Option<String>,
        connections: usize,
    ) -> Result<Self, ClientError> {
        let host = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['?', '#', '@', ' '])) {
            return Err(ClientError::Address(address.into()));
        }
        let agent = client::agent(certificates, connections);
        Ok(Self { agent, address: address.trim_end_matches('/').into(), token })
    }

    fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }
}

/// Contents of files in JSON.
#[derive(Deserialize)]
struct Contents {
    contents: BTreeMap<FilePath, String>,
}

impl HttpTarget {
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        let mut request = self.agent.get(format!("{}{path}", self.address));
        if let Some(value) = self.authorization() {
            request = request.header("Authorization", value);
        }
        let (status, body) = client::answer(request.call())?;
        if status != 200 {
            return Err(client::trouble(status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| Trouble::Broken(format!("expected a chunk's state: {error}")))
    }
}

impl Target for HttpTarget {
    fn chunk_state(&self, place: &Place) -> Result<ChunkState, Trouble> {
        self.get(&place.to_path())
    }

    fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, Trouble> {
        let Contents { contents } = self.get(&format!("{}?contents=1", place.to_path()))?;
        let sums = contents.into_iter().filter_map(|(path, sum)| Some((path, Checksum::parse(&sum)?)));
        Ok(sums.collect())
    }

    fn put(&self, segment: &Segment) -> Result<(), Trouble> {
        let mut request = self.agent.put(format!("{}{}", self.address, segment.name.to_path()));
        request = request.header("If-None-Match", "*");
        if let Some(value) = self.authorization() {
            request = request.header("Authorization", value);
        }
        let bytes = segment.encode();
        let timeout = Some(client::timeout(bytes.len()));
        let request = request.config().timeout_global(timeout).build();
        match client::answer(request.send(&bytes[..]))? {
            (200 | 201, _) => Ok(()),
            (status, body) => Err(client::trouble(status, &body)),
        }
    }
}
