//! Certificates of both sides, made by one command, and the receiver's TLS configuration.
//!
//! ```text
//! DIR/ca.pem                        the authority: both sides trust what it signed
//! DIR/receiver.pem, receiver-key.pem
//! DIR/sender.pem, sender-key.pem
//! ```
//!
//! The authority's key is never written, so no more can be signed. Certificates are made again
//! instead, which also ends the old ones.

use std::{io, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tompion_os::DirHandle;

/// Largest file with certificates that is read, in bytes.
const MAX_PEM: u64 = 1 << 20;

/// Reason why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The system refuses.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A name or certificate is not what it should be.
    #[error("{0}")]
    Wrong(String),
}

impl CertificateError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Io { path, error }
    }

    fn wrong(error: impl std::fmt::Display) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// Makes an authority and the certificates of a receiver, with these names and addresses, and of
/// its senders. The folder is made; only its owner may look into it.
///
/// # Errors
/// If the folder is there and not empty, or a name can't be in a certificate.
pub fn make_certificates(folder: &Path, names: &[String]) -> Result<(), CertificateError> {
    let authority_key = KeyPair::generate().map_err(CertificateError::wrong)?;
    let mut authority = params("Tompion authority", &[])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = authority.self_signed(&authority_key).map_err(CertificateError::wrong)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut files = vec![("ca.pem".to_owned(), certificate.pem())];
    let sides = [
        ("receiver", "Tompion receiver", names, ExtendedKeyUsagePurpose::ServerAuth),
        ("sender", "Tompion sender", &[], ExtendedKeyUsagePurpose::ClientAuth),
    ];
    for (file, name, names, usage) in sides {
        let key = KeyPair::generate().map_err(CertificateError::wrong)?;
        let mut params = params(name, names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &issuer).map_err(CertificateError::wrong)?;
        files.push((format!("{file}.pem"), certificate.pem()));
        files.push((format!("{file}-key.pem"), key.serialize_pem()));
    }
    let folder_handle = DirHandle::create_private(folder).map_err(CertificateError::io(folder))?;
    for (name, content) in files {
        let path = folder.join(&name);
        let written = folder_handle.create_new(&name).and_then(|mut file| {
            io::Write::write_all(&mut file, content.as_bytes())?;
            file.sync_all()
        });
        written.map_err(CertificateError::io(&path))?;
    }
    Ok(())
}

fn params(name: &str, names: &[String]) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(CertificateError::wrong)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Reads the receiver's configuration from a folder of certificates: TLS 1.3 alone, and only peers
/// with a certificate of the same authority.
///
/// # Errors
/// If a file is missing or wrong.
pub fn server_config(folder: &Path) -> Result<Arc<ServerConfig>, CertificateError> {
    let handle = DirHandle::open(folder).map_err(CertificateError::io(folder))?;
    let read =
        |name: &str| handle.read_bounded(name, MAX_PEM).map_err(CertificateError::io(&folder.join(name)));
    let certificates = |name: &str| -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        let wrong = |error| CertificateError::Wrong(format!("{}: {error}", folder.join(name).display()));
        CertificateDer::pem_slice_iter(&read(name)?).collect::<Result<_, _>>().map_err(wrong)
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca.pem")? {
        roots.add(certificate).map_err(CertificateError::wrong)?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(CertificateError::wrong)?;
    let key = PrivateKeyDer::from_pem_slice(&read("receiver-key.pem")?).map_err(CertificateError::wrong)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(CertificateError::wrong)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates("receiver.pem")?, key)
        .map_err(CertificateError::wrong)?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn certificates_are_made_once_and_are_private() {
        let dir = TestDir::new("certificates");
        let folder = dir.join("tls");
        make_certificates(&folder, &["localhost".into(), "127.0.0.1".into()]).unwrap();
        server_config(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(make_certificates(&folder, &["localhost".into()]).is_err(), "nothing is overwritten");
        fs::remove_file(folder.join("receiver-key.pem")).unwrap();
        assert!(server_config(&folder).unwrap_err().to_string().contains("receiver-key.pem"));
        fs::write(folder.join("ca.pem"), "nonsense").unwrap();
        assert!(server_config(&folder).is_err());
    }
}
