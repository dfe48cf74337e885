//! CARs of payloads and of pages, which are written while they are sent.

use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Digest, MAX_PAGE, Page};
use coregw_ops::car::{block_head, payload_car_header};
use futures_util::future::join_all;
use http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use crate::content::{Chunk, Chunks, PartSource, UnreadCount, first_of};
use crate::counts::{Event, Logged, RequestLog};
use crate::crowd::Unsent;
use crate::problem::Problem;
use crate::reads::{Failure, FoundPage, HeldPayload, MAX_MERGED_PAGES, Reply, SMALL_PAYLOAD_BYTES};
use crate::server::Answer;

/// The size of a block's head, about.
const HEAD_BYTES: usize = 48;

/// The answer with a CAR of what a source has.
pub(crate) fn answer(chunks: &Arc<Chunks>, source: impl PartSource) -> Response<Answer> {
    let mut response = Response::new(chunks.send(Some(Bytes::from_static(payload_car_header())), source));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.car; version=1"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
    response
}

/// Where it is reported that something was left out of an answer.
pub(crate) struct Report {
    pub(crate) log: Arc<RequestLog>,
    pub(crate) request: Logged,
}

impl Report {
    fn left_out(&self, why: &str) {
        let event = Event::Failed(format!("left out of the answer: {why}"));
        self.log.add(Logged { event, ..self.request.clone() });
    }
}

/// Payloads that are held, and their sizes, in the order of the request. Those that are removed meanwhile, or found to be
/// damaged before their first byte is sent, are left out.
pub(crate) struct PayloadCar {
    chunks: Arc<Chunks>,
    payloads: IntoIter<(Cid, u64)>,
    /// What is left of a payload that is longer than a part.
    long: Option<(Cid, Range<u64>)>,
    report: Report,
    /// Counts the memory of the list.
    _list: Unsent,
}

/// A part of a CAR of payloads.
pub(crate) enum PayloadPart {
    Blocks(Blocks),
    /// What the block of a long payload begins with, and the first part of the payload.
    First(Vec<u8>, Chunk),
    /// Another part of a long payload.
    Next(Chunk),
}

/// Whole blocks of payloads that were requested.
pub(crate) struct Blocks {
    payloads: Vec<(Cid, u64)>,
    small: Option<Reply<Vec<Option<HeldPayload>>>>,
    large: Vec<Chunk>,
    count: UnreadCount,
}

impl PayloadCar {
    pub(crate) fn new(chunks: &Arc<Chunks>, payloads: Vec<(Cid, u64)>, report: Report, list: Unsent) -> Self {
        PayloadCar { chunks: Arc::clone(chunks), payloads: payloads.into_iter(), long: None, report, _list: list }
    }

    fn begin_blocks(&mut self, most: u64) -> Blocks {
        let (mut payloads, mut total) = (Vec::new(), 0);
        while let Some((_, size)) = self.payloads.as_slice().first()
            && total + size <= most
        {
            total += size;
            payloads.extend(self.payloads.next());
        }
        let (chunks, reads) = (&self.chunks, &self.chunks.driver.reads);
        let names: Vec<_> =
            payloads.iter().filter(|each| is_small(each)).map(|(cid, _)| cid.multihash().to_vec()).collect();
        let small = (!names.is_empty()).then(|| reads.payloads(names));
        let large = payloads.iter().filter(|(_, size)| *size > SMALL_PAYLOAD_BYTES);
        let large = large.map(|(cid, size)| chunks.begin(cid.multihash(), 0..*size)).collect();
        let count = chunks.count(total as usize + HEAD_BYTES * payloads.len());
        Blocks { payloads, small, large, count }
    }

    async fn blocks(&self, blocks: Blocks) -> Result<Bytes, Problem> {
        let Blocks { payloads, small, large, count } = blocks;
        let mut small = match small {
            Some(reply) => self.small(reply, &payloads).await?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let large: Result<Vec<_>, _> = join_all(large.into_iter().map(Chunk::found))
            .await
            .into_iter()
            .map(|found| self.unless_left_out(found))
            .collect();
        let mut large = large?.into_iter();
        let mut out = Vec::with_capacity(count.size());
        for each in &payloads {
            let data = match each.0.identity() {
                Some(data) => Some(Bytes::copy_from_slice(data)),
                None if is_small(each) => small.next().flatten(),
                None => large.next().flatten(),
            };
            if let Some(data) = data {
                out.extend_from_slice(&block_head(&each.0, data.len() as u64));
                out.extend_from_slice(&data);
            }
        }
        Ok(count.until_sent(Bytes::from(out)))
    }

    /// The small payloads among these: each alone, if one of them is damaged.
    async fn small(
        &self,
        reply: Reply<Vec<Option<HeldPayload>>>,
        payloads: &[(Cid, u64)],
    ) -> Result<Vec<Option<Bytes>>, Problem> {
        let bytes = |held: Vec<Option<HeldPayload>>| held.into_iter().map(|held| held?.bytes).collect::<Vec<_>>();
        match reply.found().await {
            Err(Failure::Damaged(_)) => {
                let small = payloads.iter().filter(|each| is_small(each));
                let alone =
                    small.map(|(cid, _)| self.chunks.driver.reads.payloads(vec![cid.multihash().to_vec()]).found());
                let found = join_all(alone).await.into_iter();
                found
                    .map(|found| Ok(self.unless_left_out(found)?.and_then(|held| bytes(held).pop().flatten())))
                    .collect()
            }
            found => found.map(bytes).map_err(Problem::of_failure),
        }
    }

    /// What was found; None if it is left out: it was removed, or is damaged, which is logged.
    fn unless_left_out<T>(&self, found: Result<T, Failure>) -> Result<Option<T>, Problem> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Failure::NotFound(_)) => Ok(None),
            Err(Failure::Damaged(why)) => {
                self.report.left_out(&why);
                Ok(None)
            }
            Err(failure) => Err(Problem::of_failure(failure)),
        }
    }
}

/// Whether a payload is read with others of its part.
fn is_small((cid, size): &(Cid, u64)) -> bool {
    *size <= SMALL_PAYLOAD_BYTES && cid.identity().is_none()
}

impl PartSource for PayloadCar {
    type Begun = PayloadPart;

    fn begin(&mut self, most: u64) -> Option<PayloadPart> {
        if let Some((cid, range)) = &mut self.long
            && let Some(part) = first_of(range, most)
        {
            return Some(PayloadPart::Next(self.chunks.begin(cid.multihash(), part)));
        }
        let (cid, size) = *self.payloads.as_slice().first()?;
        if size <= most {
            return Some(PayloadPart::Blocks(self.begin_blocks(most)));
        }
        self.payloads.next();
        let mut range = 0..size;
        let first = self.chunks.begin(cid.multihash(), first_of(&mut range, most)?);
        self.long = Some((cid, range));
        Some(PayloadPart::First(block_head(&cid, size), first))
    }

    async fn finish(&mut self, begun: PayloadPart) -> Result<Bytes, Problem> {
        match begun {
            PayloadPart::Blocks(blocks) => self.blocks(blocks).await,
            PayloadPart::Next(chunk) => chunk.found().await.map_err(Problem::of_failure),
            PayloadPart::First(mut out, chunk) => {
                let count = self.chunks.count(chunk.size() + out.len());
                let Some(first) = self.unless_left_out(chunk.found().await)? else {
                    self.long = None;
                    return Ok(Bytes::new());
                };
                out.extend_from_slice(&first);
                Ok(count.until_sent(Bytes::from(out)))
            }
        }
    }
}

/// Pages in the order of the request, without those that are not held or do not have their digests.
pub(crate) struct PageCar {
    chunks: Arc<Chunks>,
    digests: IntoIter<Digest>,
    /// Counts the memory of the list.
    _list: Unsent,
}

/// Pages that were requested.
pub(crate) struct Pages {
    digests: Vec<Digest>,
    reply: Reply<Vec<FoundPage>>,
    count: UnreadCount,
}

impl PageCar {
    pub(crate) fn new(chunks: &Arc<Chunks>, digests: Vec<Digest>, list: Unsent) -> Self {
        PageCar { chunks: Arc::clone(chunks), digests: digests.into_iter(), _list: list }
    }
}

impl PartSource for PageCar {
    type Begun = Pages;

    fn begin(&mut self, most: u64) -> Option<Pages> {
        let at_once = (most as usize / MAX_PAGE).min(MAX_MERGED_PAGES);
        let digests: Vec<_> = self.digests.by_ref().take(at_once).collect();
        if digests.is_empty() {
            return None;
        }
        let reply = self.chunks.driver.reads.stored_pages(&digests);
        let count = self.chunks.count(digests.len() * MAX_PAGE);
        Some(Pages { digests, reply, count })
    }

    async fn finish(&mut self, begun: Pages) -> Result<Bytes, Problem> {
        let Pages { digests, reply, count } = begun;
        let found = reply.found().await.map_err(Problem::of_failure)?;
        let stored = |(digest, page)| if let FoundPage::Bytes(bytes) = page { Some((digest, bytes)) } else { None };
        let pages: Vec<(Digest, Bytes)> = digests.into_iter().zip(found).filter_map(stored).collect();
        let size = pages.iter().map(|(_, page)| HEAD_BYTES + page.len()).sum();
        let hashed = self.chunks.driver.call(size, move || page_blocks(&pages, size)).await?;
        Ok(count.until_sent(Bytes::from(hashed)))
    }
}

/// The blocks of pages, each under the CID of its bytes, without those that do not have their digests.
fn page_blocks(pages: &[(Digest, Bytes)], size: usize) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::with_capacity(size);
    for (digest, page) in pages {
        if Page::of_any_tree(page, digest).is_some() {
            let cid = payload::cid(page, Codec::RAW, Function::Sha2_256).map_err(Problem::of)?;
            out.extend_from_slice(&block_head(&cid, page.len() as u64));
            out.extend_from_slice(page);
        }
    }
    Ok(out)
}
