//! The service: hot reads are answered here, everything else by the application.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use coregw_core::Digest;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_ops::ForEach;
use futures_util::stream::poll_fn;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};

use crate::budget::{Arriving, Budget};
use crate::content::{Sender, field};
use crate::counts::{Counts, Event, Logged, RequestLog};
use crate::driver::Driver;
use crate::hot::{BodyLimits, HotRoutes, REQUEST_ID};
use crate::problem::Error;
use crate::problem::{Codes, Problem};
use crate::requests::check_json;
use crate::routes::{self, Hot, Route};
use crate::server::{Answer, Service};
use crate::writes::{SHORT_PAYLOAD_BYTES, Writes};

const VERIFICATION_ROLE: HeaderName = HeaderName::from_static("x-core-verification-role");
const MAX_ID_BYTES: usize = 128;

/// What a gateway is made of.
pub struct GatewayParts {
    /// Drives queries.
    pub driver: Arc<Driver>,
    /// Takes what is written.
    pub writes: Arc<Writes>,
    /// Who may write, as far as the front knows: the application answers others.
    pub writers: Writers,
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

/// Who may write.
#[derive(Debug, Clone)]
pub enum Writers {
    /// Everybody.
    Anybody,
    /// Whoever holds a bearer token with one of these SHA-256 digests.
    Holders(Vec<Digest>),
}

impl Writers {
    fn have(&self, headers: &HeaderMap) -> bool {
        let Writers::Holders(digests) = self else { return true };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(credentials), None) = (given.next(), given.next()) else { return false };
        let Some((scheme, token)) = credentials.to_str().ok().and_then(|text| text.split_once(' ')) else {
            return false;
        };
        let token = token.trim_matches(' ').as_bytes();
        let Ok(named) = payload::cid(token, Codec::RAW, Function::Sha2_256) else { return false };
        scheme.eq_ignore_ascii_case("bearer") && digests.iter().any(|digest| digest.0 == *named.digest())
    }
}

/// Answers hot requests, and hands the others to `C`.
pub struct Gateway<C> {
    routes: HotRoutes,
    codes: Codes,
    fields: Vec<(HeaderName, HeaderValue)>,
    log: Arc<RequestLog>,
    writers: Writers,
    is_read_only: bool,
    answers_hot: bool,
    ids: RequestIds,
    cold: C,
}

impl<C: Service> Gateway<C> {
    /// A gateway before an application.
    pub fn new(parts: GatewayParts, cold: C) -> Self {
        let GatewayParts { driver, writes, writers, limits, budget, counts, for_each, codes, fields, log, .. } = parts;
        let sender = Sender::new(driver, parts.payload_cache_bytes);
        let routes = HotRoutes { sender, writes, limits, budget, counts, log: Arc::clone(&log), for_each };
        let (is_read_only, answers_hot) = (parts.is_read_only, parts.answers_hot);
        Self { routes, codes, fields, log, writers, is_read_only, answers_hot, ids: RequestIds::default(), cold }
    }

    /// How many calls for queries run on threads for work, or wait for one.
    pub fn jobs(&self) -> usize {
        self.routes.driver().jobs()
    }

    fn hot_route(&self, request: &Request<Arriving>) -> Option<Route> {
        let (route, limits) = (routes::find(request.method().as_str(), request.uri().path())?, &self.routes.limits);
        let is_hot = match route.hot {
            Hot::CasHas => self.is_read_only,
            Hot::CasPut => {
                (self.routes.writes.take_chunks() || is_short(request, SHORT_PAYLOAD_BYTES)) && self.may_write(request)
            }
            Hot::Mutate => is_short(request, limits.change) && self.may_write(request),
            Hot::CreateRoot => {
                has_json(request.headers()) && is_short(request, limits.change) && self.may_write(request)
            }
            _ => true,
        };
        (is_hot && self.answers_hot).then_some(route)
    }

    /// Whether the client of a request is known to have the right to write.
    fn may_write(&self, request: &Request<Arriving>) -> bool {
        !self.is_read_only && self.writers.have(request.headers())
    }

    async fn answer_hot(
        &self,
        route: Route,
        mut head: Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Response<Answer> {
        let (began, hot) = (Instant::now(), route.hot);
        if hot == Hot::CasCar
            && let Ok(id) = HeaderValue::from_str(&self.ids.of(&head))
        {
            head.headers.insert(REQUEST_ID, id); // what is left out is logged under the same id as the rest
        }
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
        let (is_head, status, took) = (head.method == Method::HEAD, response.status().as_u16(), began.elapsed());
        let count = Count { counts: Arc::clone(&self.routes.counts), hot, is_head, status, took };
        match response.body() {
            Answer::Whole(body) => {
                let size = body.len() as u64;
                count.add(size);
                if self.log.has_access() {
                    let event = Event::Answered { status, bytes: size, took: began.elapsed() };
                    let line = self.identified(&mut response, &head, client, event);
                    self.log.add(line);
                }
                response
            }
            Answer::Parts(_) => {
                let line = self.identified(&mut response, &head, client, Event::Answered { status, bytes: 0, took });
                let sent = SentBody { log: Arc::clone(&self.log), line, count, bytes: 0, began };
                response.map(|body| sent.following(body))
            }
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
                self.log.add(Logged::new(head, client, id, Event::Failed(what.clone())));
            }
        }
        response
    }

    /// What is logged of an answer, to which the id of its request is added if there is an access log.
    fn identified(
        &self,
        response: &mut Response<Answer>,
        head: &Parts,
        client: Option<IpAddr>,
        event: Event,
    ) -> Logged {
        let known = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let id = known.unwrap_or_else(|| self.ids.of(head));
        if let Some(value) = HeaderValue::from_str(&id).ok().filter(|_| self.log.has_access()) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        Logged::new(head, client, id, event)
    }
}

impl<C: Service> Service for Gateway<C> {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        match self.hot_route(&request) {
            None => self.cold.answer(request, client).await,
            Some(route) => {
                let (head, body) = request.into_parts();
                // Boxed, so that hyper does not move the future of a hot request with those of all others.
                Box::pin(self.answer_hot(route, head, body, client.map(|client| client.ip()))).await
            }
        }
    }
}

/// Whether a request declares a body of at most this many bytes.
fn is_short(request: &Request<Arriving>, most: usize) -> bool {
    request.body().size_hint().exact().is_some_and(|length| length <= most as u64)
}

/// Whether a body is JSON, or has no type.
fn has_json(headers: &HeaderMap) -> bool {
    check_json(field(headers, &CONTENT_TYPE).as_deref(), None).is_ok()
}

/// What is counted of an answer, besides its size.
struct Count {
    counts: Arc<Counts>,
    hot: Hot,
    is_head: bool,
    status: u16,
    took: Duration,
}

impl Count {
    fn add(&self, size: u64) {
        self.counts.add(self.hot, self.is_head, self.status, self.took, size);
    }
}

/// An answer that is being sent, which is counted and logged at its end.
struct SentBody {
    log: Arc<RequestLog>,
    line: Logged,
    count: Count,
    bytes: u64,
    began: Instant,
}

impl SentBody {
    fn following(mut self, body: Answer) -> Answer {
        let Answer::Parts(mut parts) = body else { return body };
        let frames = poll_fn(move |cx| {
            let frame = ready!(Pin::new(&mut parts).poll_frame(cx));
            self.note(frame.as_ref());
            Poll::Ready(frame)
        });
        Answer::Parts(StreamBody::new(frames).boxed_unsync())
    }

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

impl Drop for SentBody {
    fn drop(&mut self) {
        self.count.add(self.bytes);
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
