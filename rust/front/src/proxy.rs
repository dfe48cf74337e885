//! Requests that another server answers, over a Unix socket of this machine.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// Unused connections that are kept.
const MAX_IDLE: usize = 64;
/// Fields that concern one connection only (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Why a body or a connection ended early.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A server behind a Unix socket, with the connections to it.
pub struct Upstream<B> {
    path: PathBuf,
    idle: Mutex<Vec<Idle<B>>>,
    max_idle: Duration,
}

struct Idle<B> {
    sender: SendRequest<B>,
    since: Instant,
}

impl<B> Upstream<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Error>,
{
    /// A server at `path`, which closes connections that are idle for more than `max_idle`; they are left before.
    pub fn new(path: PathBuf, max_idle: Duration) -> Arc<Self> {
        Arc::new(Upstream { path, idle: Mutex::default(), max_idle })
    }

    /// Sends a request on, and returns the response once its head has arrived.
    ///
    /// The request has a target in origin form, and a Host. Fields that concern one connection only are left out of both.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, ends the connection without a response, or the body fails.
    pub async fn send(self: &Arc<Self>, mut request: Request<B>) -> Result<Response<Incoming>, Error> {
        *request.version_mut() = Version::HTTP_11;
        leave_out_hop_by_hop(request.headers_mut());
        loop {
            let (mut sender, is_new) = match self.take() {
                Some(sender) => (sender, false),
                None => (self.connect().await?, true),
            };
            match sender.try_send_request(request).await {
                Ok(mut response) => {
                    self.give_back(sender);
                    leave_out_hop_by_hop(response.headers_mut());
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    // The server has closed the connection before it could have read the request.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn connect(&self) -> io::Result<SendRequest<B>> {
        let stream = UnixStream::connect(&self.path).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            let _ = connection.await; // who has sent a request on it learns how it ends
        });
        Ok(sender)
    }

    /// A connection that can be used again: the one that was used last, as the others are closed for being idle.
    fn take(&self) -> Option<SendRequest<B>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(last) = idle.pop() {
            if last.since.elapsed() < self.max_idle {
                if last.sender.is_ready() {
                    return Some(last.sender);
                }
            } else {
                idle.clear();
            }
        }
        None
    }

    /// Keeps a connection, once its response has been read.
    fn give_back(self: &Arc<Self>, mut sender: SendRequest<B>) {
        let upstream = Arc::clone(self);
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let mut idle = upstream.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < MAX_IDLE {
                    idle.push(Idle { sender, since: Instant::now() });
                }
            }
        });
    }
}

fn leave_out_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| name != header::HOST && name != header::CONTENT_LENGTH && name != header::AUTHORIZATION)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
