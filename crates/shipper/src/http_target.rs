//! Tompion's receiver as a target.

use tompion_segments::{ChunkState, Place, Segment};
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

impl Target for HttpTarget {
    fn chunk_state(&self, place: &Place) -> Result<ChunkState, Trouble> {
        let mut request = self.agent.get(format!("{}{}", self.address, place.to_path()));
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

    fn put(&self, segment: &Segment) -> Result<(), Trouble> {
        let mut request = self.agent.put(format!("{}{}", self.address, segment.name.to_path()));
        request = request.header("If-None-Match", "*");
        if let Some(value) = self.authorization() {
            request = request.header("Authorization", value);
        }
        match client::answer(request.send(&segment.encode()[..]))? {
            (200 | 201, _) => Ok(()),
            (status, body) => Err(client::trouble(status, &body)),
        }
    }
}
