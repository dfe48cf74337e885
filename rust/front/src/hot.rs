//! Answers of hot routes: what each does with the head and the body of a request.

use std::net::IpAddr;
use std::sync::Arc;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest as _};
use bytes::Bytes;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Digest, Kind, OneThread, Page, RootCid};
use coregw_ops::{BatchError, ForEach, MapProofForm, Operation, json};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::budget::{Account, Arriving, Budget, Pieces, declared_length, next_piece, read_whole};
use crate::cars::{self, PageCar, PayloadCar, Report};
use crate::content::{Content, IMMUTABLE, Sender, field, field_value, unmet};
use crate::counts::{Counts, Event, Logged, RequestLog};
use crate::driver::Driver;
use crate::media::{MediaType, negotiate};
use crate::problem::Problem;
use crate::reads::FoundPage;
use crate::requests::{Parameters, Refused, check_json, check_payload, is_json, quoted};
use crate::responses::room;
use crate::routes::{Hot, Route};
use crate::server::Answer;
use crate::writes::{CHUNK_BYTES, Writes};

/// The field with the id of a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// A byte of these is as much work as this many of other queries: a key of a multiproof is a lookup, a path of a batch too,
/// and the proof of a result is replayed.
const MULTIPROOF_FACTOR: usize = 4;
const BATCH_FACTOR: usize = 64;
const VERIFY_FACTOR: usize = 4;
/// Payloads that are looked up at once.
const CONCURRENT_LOOK_UPS: usize = 4096;

/// Limits on the bodies of requests and answers, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// A body that has no other limit.
    pub json: usize,
    /// That of the verify routes.
    pub verify: usize,
    /// That of a batch of resolves.
    pub resolve_batch: usize,
    /// The answer to a batch of resolves.
    pub batch_answer: usize,
    /// A payload.
    pub payload: usize,
    /// A root or a mutation that is stored here, at most [`SHORT_CHANGE_BYTES`](crate::writes::SHORT_CHANGE_BYTES).
    pub change: usize,
}

/// What answers hot routes.
pub(crate) struct HotRoutes {
    pub(crate) sender: Sender,
    pub(crate) limits: BodyLimits,
    pub(crate) writes: Arc<Writes>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) log: Arc<RequestLog>,
    pub(crate) for_each: ForEach,
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Problem::new(refused.code, refused.message)
    }
}

impl HotRoutes {
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.sender.driver
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        route: Route,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        match route.hot {
            Hot::Resolve => self.query(head, body, client, 1, Operation::resolve).await,
            Hot::Read => self.query(head, body, client, 1, Operation::read).await,
            Hot::Scan => self.query(head, body, client, 1, Operation::scan).await,
            // Boxed, so that the futures of the others, which are larger, are not moved with those of short queries.
            Hot::MapProof => Box::pin(self.map_proof(head, body, client)).await,
            Hot::ResolveBatch => Box::pin(self.resolve_batch(head, body, client)).await,
            Hot::VerifyResolve => Box::pin(self.verify(head, body, client, coregw_ops::resolve_verdict)).await,
            Hot::VerifyRead => Box::pin(self.verify(head, body, client, coregw_ops::read_verdict)).await,
            Hot::CasPut => Box::pin(self.put(head, body, client)).await,
            Hot::CreateRoot => Box::pin(self.create_root(head, body, client)).await,
            Hot::Mutate => Box::pin(self.mutate(&route.parameter, head, body, client)).await,
            Hot::CasHas => Box::pin(self.has(head, body, client)).await,
            Hot::CasCar => Box::pin(self.payload_car(head, body, client)).await,
            Hot::PagesCar => Box::pin(self.page_car(head, body, client)).await,
            Hot::ResolveOf | Hot::ReadOf | Hot::MapProofOf | Hot::ScanOf => {
                Box::pin(self.query_of(route.hot, &route.parameter, head)).await
            }
            Hot::Payload => Box::pin(self.payload(&route.parameter, head)).await,
            Hot::Page => Box::pin(self.page(&route.parameter, head)).await,
            Hot::Root => Box::pin(self.root(&route.parameter, head)).await,
        }
    }

    // --- bodies -------------------------------------------------------------------------------------------------------

    /// Reads the body of a request without query parameters, which has to be JSON. The account counts its memory.
    async fn json(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
        limit: usize,
    ) -> Result<(Bytes, Account), Problem> {
        Parameters::parse(query(head), &[])?;
        check_json(field(&head.headers, &CONTENT_TYPE).as_deref(), field(&head.headers, &CONTENT_ENCODING).as_deref())?;
        self.whole(body, client, limit).await
    }

    /// Reads a body, and waits until its client may have another answer in memory.
    async fn whole(&self, body: Arriving, client: Option<IpAddr>, limit: usize) -> Result<(Bytes, Account), Problem> {
        let connection = Arc::clone(body.connection());
        let mut account = self.budget.account(client);
        let body = read_whole(body, limit, &mut account).await?;
        self.counts.add_body(body.len());
        room(&connection).await;
        Ok((body, account))
    }

    // --- queries ------------------------------------------------------------------------------------------------------

    async fn query(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
        factor: usize,
        start: fn(Arc<coregw_core::PageCache>, &[u8]) -> coregw_core::Result<Operation>,
    ) -> Result<Response<Answer>, Problem> {
        let (body, _account) = self.json(head, body, client, self.limits.json).await?;
        self.run(factor, body, start).await.map(|answer| typed(answer, JSON))
    }

    async fn run(
        &self,
        factor: usize,
        request: Bytes,
        start: impl Fn(Arc<coregw_core::PageCache>, &[u8]) -> coregw_core::Result<Operation> + Clone + Send + 'static,
    ) -> Result<Vec<u8>, Problem> {
        let (cache, weight) = (Arc::clone(&self.driver().cache), factor * request.len());
        let start = move || start(Arc::clone(&cache), &request).map_err(Problem::of);
        self.driver().answer(weight, start).await
    }

    async fn map_proof(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let is_bare = prefers_octets(&head.headers);
        let (body, _account) = self.json(head, body, client, self.limits.json).await?;
        let (form, media) = if is_bare { (MapProofForm::Proof, OCTETS) } else { (MapProofForm::Result, JSON) };
        let start = move |cache, request: &[u8]| Operation::map_proof(cache, request, form);
        let mut response = typed(self.run(MULTIPROOF_FACTOR, body, start).await?, media);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        Ok(response)
    }

    async fn resolve_batch(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let (body, _account) = self.json(head, body, client, self.limits.resolve_batch).await?;
        let (most, for_each, weight) = (self.limits.batch_answer, self.for_each, BATCH_FACTOR * body.len());
        let cache = Arc::clone(&self.driver().cache);
        let start =
            move || Operation::resolve_batch(Arc::clone(&cache), &body, most, for_each).map_err(Problem::of_batch);
        self.driver().answer(weight, start).await.map(|answer| typed(answer, JSON))
    }

    async fn verify(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
        verdict: fn(&[u8]) -> coregw_core::Result<Vec<u8>>,
    ) -> Result<Response<Answer>, Problem> {
        let (body, _account) = self.json(head, body, client, self.limits.verify).await?;
        let (weight, work) = (VERIFY_FACTOR * body.len(), move || verdict(&body).map_err(Problem::of));
        self.driver().call(weight, work).await.map(|answer| typed(answer, JSON))
    }

    /// A query by URL, whose answer is valid forever.
    async fn query_of(&self, hot: Hot, root: &str, head: &Parts) -> Result<Response<Answer>, Problem> {
        let allowed: &[&str] = match hot {
            Hot::ReadOf => &["path", "index", "start", "end"],
            Hot::ScanOf => &["prefix", "after", "limit"],
            _ => &["path"],
        };
        let given = Parameters::parse(query(head), allowed)?;
        let root = Problem::cid(root)?.text();
        let request = Bytes::from(request_of(hot, &root, &given)?);
        let found = match hot {
            Hot::ReadOf => self.run(1, request, Operation::read).await,
            Hot::ScanOf => self.run(1, request, Operation::scan).await,
            Hot::ResolveOf => self.run(1, request, Operation::resolve).await,
            _ => {
                let start = |cache, request: &[u8]| Operation::map_proof(cache, request, MapProofForm::Result);
                self.run(MULTIPROOF_FACTOR, request, start).await
            }
        };
        let answer = match found {
            // The details prove the absence to whoever has the root, for ever.
            Err(problem) if hot == Hot::ReadOf && problem.code == "path_not_found" && problem.details.is_some() => {
                return Err(problem.with(CACHE_CONTROL, IMMUTABLE));
            }
            found => found?,
        };
        let etag = format!("\"{}\"", hex(&Blake2b::<U16>::digest(&answer)));
        let mut fields = HeaderMap::new();
        fields.insert(ETAG, field_value(&etag)?);
        fields.insert(CACHE_CONTROL, IMMUTABLE);
        if let Some(response) = unmet(&head.headers, &etag, &fields)? {
            return Ok(response);
        }
        fields.insert(CONTENT_TYPE, JSON);
        fields.insert(CONTENT_LENGTH, HeaderValue::from(answer.len()));
        let body = if head.method == Method::HEAD { Bytes::new() } else { Bytes::from(answer) };
        let mut response = Response::new(Answer::from(body));
        *response.headers_mut() = fields;
        Ok(response)
    }

    // --- payloads and objects -----------------------------------------------------------------------------------------

    async fn payload(&self, cid: &str, head: &Parts) -> Result<Response<Answer>, Problem> {
        Parameters::parse(query(head), &[])?;
        let cid = Problem::cid(cid)?;
        let content = match cid.identity() {
            Some(payload) => Content::Bytes(Bytes::copy_from_slice(payload)),
            None => match self.sender.find(cid.multihash()).await? {
                Some(content) => content,
                None => return Err(Problem::new("payload_not_found", format!("the payload {cid} is not held"))),
            },
        };
        self.send(head, content, &cid.text()).await
    }

    async fn page(&self, name: &str, head: &Parts) -> Result<Response<Answer>, Problem> {
        Parameters::parse(query(head), &[])?;
        let Some(digest) = Digest::from_hex(name) else {
            let message = format!("page {}: expected a digest as 64 characters of 0-9a-f", quoted(name, 100));
            return Err(Problem::new("invalid_request", message));
        };
        let Some(page) = self.stored_page(digest).await? else {
            return Err(Problem::new("page_not_found", format!("the page {name} is not held")));
        };
        if Page::of_any_tree(&page, &digest).is_none() {
            return Err(Problem::failed(format!("the page {name} does not have its digest")));
        }
        self.send(head, Content::Bytes(page), name).await
    }

    async fn root(&self, root: &str, head: &Parts) -> Result<Response<Answer>, Problem> {
        Parameters::parse(query(head), &[])?;
        let cid = Problem::cid(root)?;
        let Some(root) = cid.root() else {
            return Err(Problem::new("kind_mismatch", format!("{cid} is a payload, not a root")));
        };
        let driver = self.driver();
        if driver.in_time(driver.are_held(&[root], Vec::new())).await? != [true] {
            return Err(Problem::new("root_not_found", format!("the store has no root {cid}")));
        }
        let Some(page) = self.stored_page(root.digest).await? else {
            return Err(Problem::failed(format!("the page of the held root {cid} is missing")));
        };
        if let Err(error) = parse(&page, &root) {
            let kind = if root.kind == Kind::Map { Kind::List } else { Kind::Map };
            return Err(match parse(&page, &RootCid { kind, ..root }) {
                Ok(()) => Problem::new("root_not_found", format!("the store holds no {} {cid}", root.kind.name())),
                Err(_) => Problem::of(error),
            });
        }
        self.send(head, Content::Bytes(page), &cid.text()).await
    }

    async fn stored_page(&self, digest: Digest) -> Result<Option<Bytes>, Problem> {
        let reply = self.driver().reads.stored_pages(&[digest]);
        let found = self.driver().in_time(async { reply.found().await.map_err(Problem::of_failure) }).await?;
        Ok(found.into_iter().find_map(|page| if let FoundPage::Bytes(bytes) = page { Some(bytes) } else { None }))
    }

    async fn send(&self, head: &Parts, content: Content, name: &str) -> Result<Response<Answer>, Problem> {
        let (is_head, etag) = (head.method == Method::HEAD, format!("\"{name}\""));
        self.sender.answer(&head.headers, is_head, content, &etag).await
    }

    /// Stores a payload, durably: a long one chunk by chunk, while it arrives.
    async fn put(&self, head: &Parts, mut body: Arriving, client: Option<IpAddr>) -> Result<Response<Answer>, Problem> {
        let given = Parameters::parse(query(head), &["codec", "hash"])?;
        let (content_type, coding) = (field(&head.headers, &CONTENT_TYPE), field(&head.headers, &CONTENT_ENCODING));
        check_payload(content_type.as_deref(), coding.as_deref())?;
        let codec = Codec::parse(given.get("codec").unwrap_or("raw")).map_err(Problem::of)?;
        let function = Function::from_name(given.get("hash").unwrap_or("sha2-256")).map_err(Problem::of)?;
        let (limit, mut length) = (self.limits.payload, 0);
        let mut hasher = payload::Hasher::new(codec, function);
        let mut upload = self.writes.begin();
        let declared = declared_length(&body, limit)?;
        let mut chunk = Pieces::new(declared.min(CHUNK_BYTES));
        let mut account = self.budget.account(client);
        while let Some(mut piece) = next_piece(&mut body, &mut account).await? {
            length += piece.len();
            if length > limit {
                return Err(Problem::too_large(limit));
            }
            hasher.update(&piece);
            if function == Function::Identity {
                continue; // nobody stores it
            }
            // A full chunk is sent only when more bytes follow, so that the last one is never empty.
            while chunk.len() + piece.len() > CHUNK_BYTES {
                chunk.add(piece.split_to(CHUNK_BYTES - chunk.len()), &mut account)?;
                let account_of_chunk = std::mem::replace(&mut account, self.budget.account(client));
                upload.send(chunk.take(), account_of_chunk).await.map_err(Problem::of_failure)?;
                if let Some(left) = declared.checked_sub(length).filter(|_| declared < usize::MAX) {
                    chunk.reserve(CHUNK_BYTES.min(left + piece.len()), &mut account)?;
                }
            }
            chunk.add(piece, &mut account)?;
        }
        self.counts.add_body(length);
        let cid = hasher.cid().map_err(Problem::of)?;
        if cid.identity().is_none() {
            let stored = upload.finish(cid.multihash().to_vec(), chunk.take(), account);
            stored.await.map_err(Problem::of_failure)?;
        }
        let mut response = typed(format!("{{\"cid\":\"{cid}\"}}").into_bytes(), JSON);
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(LOCATION, field_value(&format!("/v1/cas/{cid}"))?);
        Ok(response)
    }

    // --- changes ------------------------------------------------------------------------------------------------------

    async fn create_root(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let (body, account) = self.json(head, body, client, self.limits.change).await?;
        self.change(body, account, |cache, request| Operation::create_root(cache, request, &OneThread)).await
    }

    async fn mutate(
        &self,
        root: &str,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let (body, account) = self.json(head, body, client, self.limits.change).await?;
        let base = Problem::cid(root)?;
        self.change(body, account, move |cache, request| Operation::mutate(cache, &base, request)).await
    }

    async fn change(
        &self,
        request: Bytes,
        account: Account,
        start: impl FnOnce(Arc<coregw_core::PageCache>, &[u8]) -> coregw_core::Result<Operation> + Send + 'static,
    ) -> Result<Response<Answer>, Problem> {
        let (cache, bytes) = (Arc::clone(&self.driver().cache), request.len());
        let start = move || start(cache, &request).map_err(Problem::of);
        let mut response = typed(self.driver().change(&self.writes, account, bytes, start).await?, JSON);
        *response.status_mut() = StatusCode::CREATED;
        Ok(response)
    }

    /// Which payloads are held, without renewing them.
    async fn has(&self, head: &Parts, body: Arriving, client: Option<IpAddr>) -> Result<Response<Answer>, Problem> {
        let content_type = field(&head.headers, &CONTENT_TYPE);
        if content_type.as_deref().is_some_and(is_json) {
            let (body, _account) = self.json(head, body, client, self.limits.json).await?;
            let cids = self.cids(body, coregw_ops::read_has_batch).await?;
            let sizes = self.sizes(&cids).await?;
            let mut answer = String::from("{\"profile\":\"cas.has-batch/v0alpha1\",\"results\":[");
            for (index, (cid, size)) in cids.iter().zip(sizes).enumerate() {
                let (comma, is_held) = (if index > 0 { "," } else { "" }, size.is_some());
                answer.push_str(&format!("{comma}{{\"cid\":\"{cid}\",\"present\":{is_held}}}"));
            }
            answer.push_str("]}");
            return Ok(typed(answer.into_bytes(), JSON));
        }
        Parameters::parse(query(head), &[])?;
        check_payload(content_type.as_deref(), field(&head.headers, &CONTENT_ENCODING).as_deref())?;
        let (body, _account) = self.whole(body, client, self.limits.json).await?;
        let cids = self.cids(body, coregw_ops::read_cids).await?;
        let mut bits = vec![0_u8; cids.len().div_ceil(8)];
        for (index, size) in self.sizes(&cids).await?.into_iter().enumerate() {
            bits[index / 8] |= u8::from(size.is_some()) << (index % 8);
        }
        Ok(typed(bits, OCTETS))
    }

    async fn cids(&self, body: Bytes, read: fn(&[u8]) -> Result<Vec<Cid>, BatchError>) -> Result<Vec<Cid>, Problem> {
        self.driver().call(body.len(), move || read(&body).map_err(Problem::of_batch)).await
    }

    async fn payload_car(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let connection = Arc::clone(body.connection());
        let (body, _account) = self.json(head, body, client, self.limits.json).await?;
        let cids = self.cids(body, coregw_ops::read_get_batch).await?;
        let sizes = self.sizes(&cids).await?;
        let held: Vec<(Cid, u64)> = cids.into_iter().zip(sizes).filter_map(|(cid, size)| Some((cid, size?))).collect();
        let id =
            field(&head.headers, &REQUEST_ID).map_or_else(String::new, |id| String::from_utf8_lossy(&id).into_owned());
        let request = Logged::new(head, client, id, Event::Failed(String::new()));
        let report = Report { log: Arc::clone(&self.log), request };
        let list = connection.hold(size_of_val(&*held));
        let chunks = &self.sender.chunks;
        Ok(cars::answer(chunks, PayloadCar::new(chunks, held, report, list)))
    }

    async fn page_car(
        &self,
        head: &Parts,
        body: Arriving,
        client: Option<IpAddr>,
    ) -> Result<Response<Answer>, Problem> {
        let connection = Arc::clone(body.connection());
        let (body, _account) = self.json(head, body, client, self.limits.json).await?;
        let (weight, read) = (body.len(), move || coregw_ops::read_get_pages(&body).map_err(Problem::of_batch));
        let digests = self.driver().call(weight, read).await?;
        let list = connection.hold(size_of_val(&*digests));
        let chunks = &self.sender.chunks;
        Ok(cars::answer(chunks, PageCar::new(chunks, digests, list)))
    }

    /// The size of each payload, None for one that is not held.
    async fn sizes(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>, Problem> {
        let mut held = Vec::with_capacity(cids.len());
        for part in cids.chunks(CONCURRENT_LOOK_UPS) {
            let stored = part.iter().filter(|cid| cid.identity().is_none()).map(|cid| cid.multihash().to_vec());
            let reply = self.driver().reads.sizes(stored.collect());
            let found = self.driver().in_time(async { reply.found().await.map_err(Problem::of_failure) }).await?;
            let mut found = found.into_iter();
            let size =
                |cid: &Cid| cid.identity().map_or_else(|| found.next().flatten(), |data| Some(data.len() as u64));
            held.extend(part.iter().map(size));
        }
        Ok(held)
    }
}

fn query(head: &Parts) -> &str {
    head.uri.query().unwrap_or_default()
}

/// An answer of this media type.
fn typed(body: Vec<u8>, media: HeaderValue) -> Response<Answer> {
    let mut response = Response::new(Answer::from(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

/// Whether Accept prefers bare bytes to JSON.
fn prefers_octets(headers: &HeaderMap) -> bool {
    let Some(accept) = field(headers, &ACCEPT) else { return false };
    let offers: Option<Vec<MediaType>> = [JSON, OCTETS].iter().map(|each| MediaType::parse(each.as_bytes())).collect();
    offers.is_some_and(|offers| negotiate(&accept, &offers) == Some(1))
}

fn parse(page: &[u8], root: &RootCid) -> coregw_core::Result<()> {
    Page::parse(page, root.kind, root.suite, &root.digest).map(drop)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The request, as of a POST, that a URL asks.
fn request_of(hot: Hot, root: &str, given: &Parameters) -> Result<String, Refused> {
    let name = match hot {
        Hot::ReadOf => "read",
        Hot::ScanOf => "scan",
        Hot::MapProofOf => "map-proof",
        _ => "resolve",
    };
    let mut request = format!("{{\"profile\":\"core.{name}/v0alpha1\",\"root\":\"{root}\"");
    match hot {
        Hot::ReadOf => {
            request.push_str(",\"query\":");
            match given.names()[..] {
                ["path"] => {
                    request.push_str("{\"kind\":\"map_key\"");
                    write_segments(&mut request, "segments", given.get("path"));
                }
                ["index"] => {
                    request.push_str("{\"kind\":\"list_index\"");
                    write_integer(&mut request, "index", given)?;
                }
                ["start"] | ["end", "start"] => {
                    // In the order in which they are checked.
                    let mut end = String::new();
                    write_integer(&mut end, "end", given)?;
                    request.push_str("{\"kind\":\"list_range\"");
                    write_integer(&mut request, "start", given)?;
                    request.push_str(&end);
                }
                _ => {
                    let message = "query parameters: expected path, or index, or start with or without end".to_owned();
                    return Err(Refused { code: "invalid_request", message });
                }
            }
            request.push('}');
        }
        Hot::ScanOf => {
            write_segments(&mut request, "prefix", given.get("prefix"));
            if let Some(after) = given.get("after") {
                write_segments(&mut request, "after", Some(after));
            }
            write_integer(&mut request, "limit", given)?;
        }
        Hot::MapProofOf => write_segments(&mut request, "key", given.get("path")),
        _ => write_segments(&mut request, "segments", given.get("path")),
    }
    request.push('}');
    Ok(request)
}

/// Appends a member: the segments of a path in text form, whose validity the operation checks; none of the empty text.
fn write_segments(out: &mut String, name: &str, path: Option<&str>) {
    out.push_str(&format!(",\"{name}\":["));
    for (index, segment) in
        path.filter(|path| !path.is_empty()).into_iter().flat_map(|path| path.split('/')).enumerate()
    {
        if index > 0 {
            out.push(',');
        }
        json::write_string(out, segment);
    }
    out.push(']');
}

/// Appends a member if the parameter was given.
fn write_integer(out: &mut String, name: &str, given: &Parameters) -> Result<(), Refused> {
    if let Some(number) = given.integer(name)? {
        out.push_str(&format!(",\"{name}\":{number}"));
    }
    Ok(())
}
