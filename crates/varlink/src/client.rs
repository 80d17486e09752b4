//! Client: calls methods, one after the other.

use std::{io, os::unix::net::UnixStream, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    connection::{Connection, Incoming},
    message::{Call, CallError, MAX_REPLY, Reply, encode},
};

/// Time to send a call.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Failure of a call, seen by the client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service has refused the call.
    #[error(transparent)]
    Refused(CallError),
    /// The service did not reply in time.
    #[error("no reply within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The service closed the connection without a reply.
    #[error("the connection was closed without a reply")]
    Closed,
    /// The reply is none of this protocol.
    #[error("expected a reply of varlink, found {0}")]
    Malformed(String),
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] io::Error),
}

/// Connection to a service.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    timeout: Duration,
}

impl Client {
    /// A client on a connection. Each reply must come within `timeout`.
    pub fn new(stream: UnixStream, timeout: Duration) -> Self {
        Self { connection: Connection::new(stream), timeout }
    }

    /// Calls a method and waits for its reply.
    ///
    /// # Errors
    /// If the service refuses the call, or nothing useful comes back.
    pub fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: &impl Serialize,
    ) -> Result<T, ClientError> {
        let sent = self.send(Call::new(method, object(parameters)?));
        let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        match sent {
            Err(ClientError::Connection(error)) if is_closed(&error) => {
                // A service that refuses the connection says why before it closes it.
                let reply = self.reply(Some(self.timeout));
                if matches!(reply, Err(ClientError::Refused(_))) { reply } else { Err(error.into()) }
            }
            sent => sent.and_then(|()| self.reply(Some(self.timeout))),
        }
    }

    /// Calls a method whose replies are to be taken with [`Client::next_reply`].
    ///
    /// # Errors
    /// If the connection fails.
    pub fn subscribe(&mut self, method: &str, parameters: &impl Serialize) -> Result<(), ClientError> {
        self.send(Call { more: true, ..Call::new(method, object(parameters)?) })
    }

    /// Waits for the next reply, however long it takes.
    ///
    /// # Errors
    /// If the service refuses the call, or has no more replies.
    pub fn next_reply<T: DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        self.reply(None)
    }

    fn send(&self, call: Call) -> Result<(), ClientError> {
        Ok(self.connection.write(&encode(&call), SEND_TIMEOUT)?)
    }

    fn reply<T: DeserializeOwned>(&mut self, idle: Option<Duration>) -> Result<T, ClientError> {
        let message = match self.connection.read(MAX_REPLY, self.timeout, idle)? {
            Incoming::Message(message) => message,
            Incoming::End => return Err(ClientError::Closed),
            Incoming::Late => return Err(ClientError::Timeout(self.timeout)),
            Incoming::TooLarge => {
                return Err(ClientError::Malformed(format!("more than {MAX_REPLY} bytes")));
            }
        };
        let malformed = |error: serde_json::Error| ClientError::Malformed(error.to_string());
        let reply: Reply = serde_json::from_slice(&message).map_err(malformed)?;
        if let Some(name) = reply.error {
            return Err(ClientError::Refused(CallError { name, parameters: reply.parameters }));
        }
        serde_json::from_value(Value::Object(reply.parameters)).map_err(malformed)
    }
}

/// Parameters as an object.
fn object(parameters: &impl Serialize) -> Result<serde_json::Map<String, Value>, ClientError> {
    match serde_json::to_value(parameters) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        Ok(Value::Null) => Ok(serde_json::Map::new()),
        _ => Err(ClientError::Malformed("parameters that are no object".into())),
    }
}
