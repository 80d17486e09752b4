//! HTTP client of all targets: TLS by certificates, and an end of every wait.

use std::{fs, io, path::Path, time::Duration};

use rustls::crypto::ring;
use ureq::{
    Agent, Body,
    http::Response,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use crate::Trouble;

/// Time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request and its answer, beside what its length allows.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Slowest link that makes progress, in bytes per second.
const MIN_RATE: u64 = 1 << 10;
/// Largest answer that is read, in bytes: the state of a chunk with very many files.
const MAX_ANSWER: u64 = 64 << 20;
/// Files in which distributions keep the authorities that a machine trusts.
const SYSTEM_AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file can't be read.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// It has no certificate or key.
    #[error("{0}: expected {1}")]
    Content(String, &'static str),
    /// The address is none.
    #[error("expected https://HOST:PORT, found `{0}`")]
    Address(String),
}

/// Certificates of a sender.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    authorities: Option<Vec<Certificate<'static>>>,
    own: Option<ClientCert>,
}

impl Certificates {
    /// Reads a folder that the receiver made: its authority, and the sender's certificate and key.
    ///
    /// # Errors
    /// If a file is missing or wrong.
    pub fn read(folder: &Path) -> Result<Self, ClientError> {
        let authorities = certificates(&folder.join("ca.pem"))?;
        let chain = certificates(&folder.join("sender.pem"))?;
        let path = folder.join("sender-key.pem");
        let shown = path.display().to_string();
        let bytes = fs::read(&path).map_err(|error| ClientError::Io(shown.clone(), error))?;
        let key = PrivateKey::from_pem(&bytes).map_err(|_| ClientError::Content(shown, "a private key"))?;
        Ok(Self { authorities: Some(authorities), own: Some(ClientCert::new_with_certs(&chain, key)) })
    }

    /// Reads authorities alone, of a file or of the system.
    ///
    /// # Errors
    /// If the file is missing or wrong.
    pub fn authorities(file: Option<&Path>) -> Result<Self, ClientError> {
        let of_system = || SYSTEM_AUTHORITIES.map(Path::new).into_iter().find(|path| path.exists());
        let Some(file) = file.or_else(of_system) else { return Ok(Self::default()) };
        Ok(Self { authorities: Some(certificates(file)?), own: None })
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, ClientError> {
    let shown = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| ClientError::Io(shown.clone(), error))?;
    let items = parse_pem(&bytes).filter_map(Result::ok);
    let found: Vec<_> = items
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { Err(ClientError::Content(shown, "a certificate")) } else { Ok(found) }
}

/// Makes a client that keeps so many connections.
pub(crate) fn agent(certificates: &Certificates, connections: usize) -> Agent {
    let roots = certificates.authorities.as_deref().unwrap_or_default();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(roots))
        .client_cert(certificates.own.clone())
        .unversioned_rustls_crypto_provider(ring::default_provider().into())
        .build();
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("tompion/", env!("CARGO_PKG_VERSION")))
        .max_idle_connections_per_host(connections)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(CALL_TIMEOUT))
        .tls_config(tls)
        .build()
        .new_agent()
}

/// Time for a request with a body of so many bytes.
pub(crate) fn timeout(bytes: usize) -> Duration {
    CALL_TIMEOUT + Duration::from_secs(bytes as u64 / MIN_RATE)
}

/// Status and body of an answer.
pub(crate) fn answer(result: Result<Response<Body>, ureq::Error>) -> Result<(u16, Vec<u8>), Trouble> {
    let broken = |error: ureq::Error| Trouble::Broken(error.to_string());
    let mut response = result.map_err(broken)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec().map_err(broken)?;
    Ok((status, body))
}

/// Trouble of an answer that is no success.
pub(crate) fn trouble(status: u16, body: &[u8]) -> Trouble {
    let text: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(300).collect();
    let said = serde_json::from_slice::<serde_json::Value>(body).ok();
    let said = said.and_then(|value| Some(value.get("error")?.as_str()?.to_owned())).unwrap_or(text);
    let text = format!("the other side answers {status}: {said}");
    match status {
        409 | 412 => Trouble::Conflict(text),
        _ => Trouble::Refused(text),
    }
}
