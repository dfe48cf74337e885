//! The service: hot reads are answered here, everything else by the application.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use coregw_ops::ForEach;
use futures_util::stream::poll_fn;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};

use crate::budget::{Arriving, Budget};
use crate::content::Sender;
use crate::counts::{Counts, Event, Logged, RequestLog};
use crate::driver::Driver;
use crate::hot::{BodyLimits, HotRoutes};
use crate::problem::Error;
use crate::problem::{Codes, Problem};
use crate::routes::{self, Hot, Route};
use crate::server::{Answer, Service};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const VERIFICATION_ROLE: HeaderName = HeaderName::from_static("x-core-verification-role");
const MAX_ID_BYTES: usize = 128;

/// What a gateway is made of.
pub struct GatewayParts {
    /// Drives queries.
    pub driver: Arc<Driver>,
    /// Bounds of bodies.
    pub limits: BodyLimits,
    /// The memory of the bodies of requests.
    pub budget: Arc<Budget>,
    /// Memory for small payloads, in bytes.
    pub payload_cache_bytes: u64,
    /// The codes of errors.
    pub codes: Codes,
    /// The fields of all answers.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// What is counted.
    pub counts: Arc<Counts>,
    /// What is logged.
    pub log: Arc<RequestLog>,
    /// Whether which payloads are held is only looked up: nobody may write, so nothing is renewed.
    pub is_read_only: bool,
    /// Whether hot requests are answered here, and not by the application like all others.
    pub answers_hot: bool,
    /// Calls a function for each index below a count, on all cores.
    pub for_each: ForEach,
}

/// Answers hot requests, and hands the others to `C`.
pub struct Gateway<C> {
    routes: HotRoutes,
    codes: Codes,
    fields: Vec<(HeaderName, HeaderValue)>,
    log: Arc<RequestLog>,
    is_read_only: bool,
    answers_hot: bool,
    ids: RequestIds,
    cold: C,
}

impl<C: Service> Gateway<C> {
    /// A gateway before an application.
    pub fn new(parts: GatewayParts, cold: C) -> Self {
        let GatewayParts { driver, limits, budget, counts, for_each, codes, fields, log, .. } = parts;
        let sender = Sender::new(driver, parts.payload_cache_bytes);
        let routes = HotRoutes { sender, limits, budget, counts, for_each };
        let (is_read_only, answers_hot) = (parts.is_read_only, parts.answers_hot);
        Self { routes, codes, fields, log, is_read_only, answers_hot, ids: RequestIds::default(), cold }
    }

    /// How many calls for queries run on threads for work, or wait for one.
    pub fn jobs(&self) -> usize {
        self.routes.driver().jobs()
    }

    fn hot_route(&self, request: &Request<Arriving>) -> Option<Route> {
        let route = routes::find(request.method().as_str(), request.uri().path())?;
        let is_hot = self.answers_hot && (route.hot != Hot::CasHas || self.is_read_only);
        is_hot.then_some(route)
    }

    async fn answer_hot(&self, route: Route, head: Parts, body: Arriving, client: Option<IpAddr>) -> Response<Answer> {
        let (began, hot) = (Instant::now(), route.hot);
        let mut response = match self.routes.answer(route, &head, body, client).await {
            Ok(response) => response,
            Err(problem) => self.refuse(&problem, &head, client),
        };
        let headers = response.headers_mut();
        for (name, value) in &self.fields {
            headers.insert(name, value.clone());
        }
        if matches!(hot, Hot::VerifyResolve | Hot::VerifyRead) {
            headers.insert(VERIFICATION_ROLE, HeaderValue::from_static("diagnostic"));
        }
        let (status, took, size) = (response.status().as_u16(), began.elapsed(), size_of(&response));
        self.routes.counts.add(hot, head.method == Method::HEAD, status, took, size);
        if self.log.has_access() || matches!(response.body(), Answer::Parts(_)) {
            self.logged(response, &head, client, began)
        } else {
            response
        }
    }

    fn refuse(&self, problem: &Problem, head: &Parts, client: Option<IpAddr>) -> Response<Answer> {
        let mut response = problem.response(&self.codes).map(Answer::from);
        if problem.code == "internal" {
            let id = self.ids.of(head);
            if let Ok(value) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(REQUEST_ID, value);
            }
            if let Some(what) = &problem.logged {
                self.log.add(line(head, client, id, Event::Failed(what.clone())));
            }
        }
        response
    }

    /// Adds the id of a request to its answer, and logs the answer when it was sent, or why it was not.
    fn logged(
        &self,
        mut response: Response<Answer>,
        head: &Parts,
        client: Option<IpAddr>,
        began: Instant,
    ) -> Response<Answer> {
        let known = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let id = known.unwrap_or_else(|| self.ids.of(head));
        if let Some(value) = HeaderValue::from_str(&id).ok().filter(|_| self.log.has_access()) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let (status, bytes, took) = (response.status().as_u16(), size_of(&response), began.elapsed());
        let line = line(head, client, id, Event::Answered { status, bytes, took });
        if let Answer::Whole(_) = response.body() {
            self.log.add(line);
            return response;
        }
        let mut sent = LoggedBody { log: Arc::clone(&self.log), line, bytes: 0, began };
        response.map(|body| match body {
            Answer::Whole(body) => Answer::Whole(body),
            Answer::Parts(mut body) => {
                let frames = poll_fn(move |cx| {
                    let frame = ready!(Pin::new(&mut body).poll_frame(cx));
                    sent.note(frame.as_ref());
                    Poll::Ready(frame)
                });
                Answer::Parts(StreamBody::new(frames).boxed_unsync())
            }
        })
    }
}

impl<C: Service> Service for Gateway<C> {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        match self.hot_route(&request) {
            None => self.cold.answer(request, client).await,
            Some(route) => {
                let (head, body) = request.into_parts();
                // Boxed, since a connection has room for the future of a request also while it is idle.
                Box::pin(self.answer_hot(route, head, body, client.map(|client| client.ip()))).await
            }
        }
    }
}

/// The size of the body of an answer, in bytes.
fn size_of(response: &Response<Answer>) -> u64 {
    let declared = || response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    match response.body() {
        Answer::Whole(body) => body.len() as u64,
        Answer::Parts(_) => declared().unwrap_or(0),
    }
}

fn line(head: &Parts, client: Option<IpAddr>, id: String, event: Event) -> Logged {
    let path = routes::decoded(head.uri.path()).into_owned();
    Logged { client, method: head.method.as_str().to_owned(), path, id, event }
}

/// An answer that is being sent, which is logged at its end.
struct LoggedBody {
    log: Arc<RequestLog>,
    line: Logged,
    bytes: u64,
    began: Instant,
}

impl LoggedBody {
    /// Counts a part of the body, or logs why there is none.
    fn note(&mut self, frame: Option<&Result<Frame<Bytes>, Error>>) {
        match frame {
            Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => {
                let event = Event::Failed(error.to_string());
                self.log.add(Logged { event, ..self.line.clone() });
            }
            None => {}
        }
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        if let Event::Answered { bytes, took, .. } = &mut self.line.event {
            (*bytes, *took) = (self.bytes, self.began.elapsed());
        }
        if self.log.has_access() {
            self.log.add(self.line.clone());
        }
    }
}

/// Ids of requests: that which the client sent, if it is sane, or a random one.
#[derive(Default)]
struct RequestIds {
    random: RandomState,
    number: AtomicU64,
}

impl RequestIds {
    fn of(&self, head: &Parts) -> String {
        let is_sane = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/+=-".contains(&byte);
        let given = head.headers.get(REQUEST_ID).and_then(|given| given.to_str().ok());
        match given.filter(|given| (1..=MAX_ID_BYTES).contains(&given.len()) && given.bytes().all(is_sane)) {
            Some(given) => given.to_owned(),
            None => {
                let mut hasher = self.random.build_hasher();
                hasher.write_u64(self.number.fetch_add(1, Ordering::Relaxed));
                format!("{:016x}", hasher.finish())
            }
        }
    }
}
