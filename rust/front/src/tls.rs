//! TLS: certificates that can be replaced while connections are open, and HTTP/2 by ALPN.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The certificate of a server, read from files.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads a certificate with its chain, and its key, both as PEM.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, holds no certificate or key, or if the two do not belong together. The message names
    /// the file.
    pub fn read(certificate: PathBuf, key: PathBuf) -> io::Result<Self> {
        let acceptor = RwLock::new(acceptor(&certificate, &key)?);
        Ok(Tls { certificate, key, acceptor })
    }

    /// Reads the files again. Connections that are open keep the certificate that they have; after an error, so do new ones.
    ///
    /// # Errors
    ///
    /// As [`Tls::read`].
    pub fn reload(&self) -> io::Result<()> {
        let acceptor = acceptor(&self.certificate, &self.key)?;
        *self.acceptor.write() = acceptor;
        Ok(())
    }

    /// Opens a connection. The caller gives it a deadline.
    ///
    /// # Errors
    ///
    /// If the client does not speak TLS 1.2 or 1.3 with this server.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let acceptor = self.acceptor.read().clone();
        acceptor.accept(stream).await
    }
}

fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| unusable(certificate, &error))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(certificate, &error))?;
    if chain.is_empty() {
        return Err(unusable(certificate, &"has no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => unusable(key, &"has no private key"),
        error => unusable(key, &error),
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                unusable(certificate, &format_args!("is not the certificate of the key in {}", key.display()))
            }
            error => unusable(certificate, &error),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
