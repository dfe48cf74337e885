//! CARs of payloads and pages on a socket, and what is read ahead of a client.
#![cfg(unix)]

use std::time::Duration;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Digest};
use coregw_front::counts::Event;
use coregw_front::reads::Failure;
use coregw_ops::car::{block_head, payload_car_header};
use http_body_util::BodyExt;
use serde_json::json;

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/rules.rs"]
mod rules;
#[path = "support/store.rs"]
mod store;

use gateway::{Options, Running, start};
use rules::until;
use store::{Stored, map, target};

const MIB: usize = 1 << 20;

fn some_bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

/// A store of payloads of these sizes, and the CIDs of these.
fn stored_of(sizes: &[usize]) -> (Stored, Vec<Cid>) {
    let mut stored = Stored::default();
    let cids = sizes.iter().zip(1..).map(|(size, number)| stored.add_payload(number, some_bytes(*size))).collect();
    (stored, cids)
}

fn request_of(cids: &[Cid]) -> String {
    let texts: Vec<_> = cids.iter().map(Cid::text).collect();
    json!({"profile": "cas.get-batch/v0alpha1", "cids": texts}).to_string()
}

/// The CAR of these blocks.
fn car_of<'a>(blocks: impl IntoIterator<Item = (Cid, &'a [u8])>) -> Vec<u8> {
    let mut car = payload_car_header().to_vec();
    for (cid, bytes) in blocks {
        car.extend(block_head(&cid, bytes.len() as u64));
        car.extend(bytes);
    }
    car
}

/// What a client gets of a CAR until it ends: whether that is its end.
async fn received(gateway: &Running, target: &str, body: &str) -> (Vec<u8>, bool) {
    // An answer that fails before its head was flushed has none.
    let Some(answer) = gateway.try_begin("POST", target, &[], body.as_bytes()).await else {
        return (Vec::new(), false);
    };
    let (mut answer, mut bytes) = (answer.into_body(), Vec::new());
    loop {
        match answer.frame().await {
            None => return (bytes, true),
            Some(Err(_)) => return (bytes, false),
            Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap_or_default()),
        }
    }
}

#[tokio::test]
async fn payloads_come_in_the_requested_order_without_those_that_are_not_held() {
    let sizes = [0, 1, 4096, 64 << 10, (64 << 10) + 1, MIB, MIB + 1, 3 * MIB + 5, 700_000, 700_001, 2, 2];
    let (stored, cids) = stored_of(&sizes);
    let gateway = start(stored, Options::default()).await;
    let identity = Cid::of_payload(0x55, Function::Identity, b"abc");
    let mut requested = cids.clone();
    requested.extend([target(1000), identity, cids[5], cids[2], target(1001)]);
    requested.rotate_left(3);
    let payloads: Vec<_> = sizes.iter().map(|size| some_bytes(*size)).collect();
    let blocks = requested.iter().filter_map(|cid| match cids.iter().position(|each| each == cid) {
        Some(at) => Some((*cid, &payloads[at][..])),
        None => (*cid == identity).then_some((*cid, &b"abc"[..])),
    });
    let expected = car_of(blocks);
    let fields = [("range", "bytes=0-1"), ("accept", "text/plain")];
    let got = gateway.send("POST", "/v1/cas//car", &fields, request_of(&requested).as_bytes()).await;
    assert_eq!((got.status, got.body.len()), (200, expected.len()));
    assert!(got.body == expected);
    assert_eq!(got.field("content-type"), "application/vnd.ipld.car; version=1");
    assert_eq!((got.field("cache-control"), got.field("accept-ranges")), ("no-cache", "none"));
    assert_eq!((got.field("content-length"), got.field("transfer-encoding")), ("", "chunked"));
    assert_eq!(got.field("x-content-type-options"), "nosniff");
    assert_eq!(gateway.post("/v1/cas/car", &request_of(&[])).await.body, payload_car_header());
    let counted = || gateway.counts.snapshot().into_iter().find(|each| each.route == "/v1/cas/car");
    until(|| counted().is_some_and(|each| each.sizes.total == (expected.len() + payload_car_header().len()) as u64))
        .await;
}

#[tokio::test]
async fn many_small_payloads_are_few_visits() {
    let (stored, cids) = stored_of(&[4096; 1000]);
    let gateway = start(stored, Options::default()).await;
    let (car, is_whole) = received(&gateway, "/v1/cas/car", &request_of(&cids)).await;
    let payload = some_bytes(4096);
    assert!(is_whole && car == car_of(cids.iter().map(|cid| (*cid, &payload[..]))));
    let visits = gateway.store.control().visits;
    assert!(visits <= 6, "{visits} visits: one for the sizes, and one a mebibyte");
}

#[tokio::test]
async fn what_is_damaged_or_removed_is_left_out_before_its_first_byte_and_ends_the_answer_after_it() {
    let sizes = [10, 20, 100_000, 2 * MIB, 30, 3 * MIB];
    let (mut stored, cids) = stored_of(&sizes);
    let name = |at: usize| cids[at].multihash().to_vec();
    stored.damaged.extend([(name(1), 0), (name(2), 0), (name(3), 0), (name(5), 2 * MIB as u64)]);
    let gateway = start(stored, Options::default()).await;
    let payloads: Vec<_> = sizes.iter().map(|size| some_bytes(*size)).collect();
    let whole = car_of([0, 4].map(|at| (cids[at], &payloads[at][..])));
    let fields = [("x-request-id", "given-id")];
    let got = gateway.send("POST", "/v1/cas/car", &fields, request_of(&cids[..5]).as_bytes()).await;
    assert!(got.body == whole);
    let lines = gateway.log.take();
    let is_reported = |event: &Event| matches!(event, Event::Failed(what) if what.contains("left out"));
    assert!(lines.len() == 3 && lines.iter().all(|line| line.id == "given-id" && is_reported(&line.event)));
    let (car, is_whole) = received(&gateway, "/v1/cas/car", &request_of(&cids)).await;
    assert!(!is_whole && car.starts_with(&whole) && car.len() < whole.len() + 3 * MIB);
    // Payloads that are removed once their sizes are known.
    for at in [0, 2, 3] {
        let (stored, cids) = stored_of(&sizes);
        let gateway = start(stored, Options::default()).await;
        let store = std::sync::Arc::clone(&gateway.store);
        let name = cids[at].multihash().to_vec();
        gateway.store.control().after_read =
            Some(Box::new(move || drop(store.control().stored.payloads.remove(&name))));
        let (car, is_whole) = received(&gateway, "/v1/cas/car", &request_of(&cids)).await;
        let left = (0..6).filter(|each| *each != at).map(|each| (cids[each], &payloads[each][..]));
        assert!(is_whole && car == car_of(left), "without {at}");
    }
}

#[tokio::test]
async fn a_store_that_is_away_is_told_before_the_answer_and_ends_it_later() {
    let (stored, cids) = stored_of(&[3 * MIB, 10]);
    let gateway = start(stored, Options::default()).await;
    gateway.store.control().stored.failure = Some(Failure::Unavailable("the store is away".to_owned()));
    let got = gateway.post("/v1/cas/car", &request_of(&cids)).await;
    assert_eq!(got.outcome(), (503, "unavailable".to_owned()));
    gateway.store.control().stored.failure = None;
    let store = std::sync::Arc::clone(&gateway.store);
    gateway.store.control().after_read = Some(Box::new(move || {
        store.control().stored.failure = Some(Failure::Unavailable("the store is away".to_owned()));
    }));
    let (car, is_whole) = received(&gateway, "/v1/cas/car", &request_of(&cids)).await;
    assert!(!is_whole && payload_car_header().starts_with(&car));
    let lines = gateway.log.take();
    assert!(matches!(&lines[..], [line] if matches!(&line.event, Event::Failed(what) if what.contains("away"))));
}

#[tokio::test]
async fn pages_come_in_the_requested_order_each_under_the_cid_of_its_bytes() {
    let mut stored = Stored::default();
    stored.add(&map(20_000));
    let mut digests: Vec<Digest> = stored.pages.keys().copied().collect();
    assert!(digests.len() > 130, "{} pages: several parts", digests.len());
    digests.sort_unstable_by_key(|digest| digest.0);
    let pages = stored.pages.clone();
    let damaged = digests[7];
    stored.pages.insert(damaged, b"damaged".to_vec());
    let gateway = start(stored, Options::default()).await;
    let mut requested = digests.clone();
    requested.insert(3, Digest([7; 32]));
    requested.push(digests[0]);
    let held = requested.iter().filter(|digest| **digest != damaged).filter_map(|digest| pages.get(digest));
    let cid = |page: &[u8]| payload::cid(page, Codec::RAW, Function::Sha2_256).expect("a hash takes any length");
    let expected = car_of(held.map(|page| (cid(page), &page[..])));
    let texts = |digests: &[Digest]| {
        let texts: Vec<_> = digests.iter().map(Digest::to_string).collect();
        json!({"profile": "pages.get-batch/v0alpha1", "pages": texts}).to_string()
    };
    let got = gateway.post("/v1/pages/car", &texts(&requested)).await;
    assert!(got.status == 200 && got.body == expected);
    assert_eq!(got.field("content-type"), "application/vnd.ipld.car; version=1");
    let too_many = texts(&[damaged; 1025]);
    for (body, expected) in [
        (too_many.as_str(), (413, "too_large")),
        (r#"{"profile":"cas.get-batch/v0alpha1","pages":[]}"#, (400, "unknown_profile")),
        (r#"{"profile":"pages.get-batch/v0alpha1","pages":["x"]}"#, (400, "invalid_request")),
        ("{}", (400, "invalid_request")),
    ] {
        assert_eq!(gateway.post("/v1/pages/car", body).await.outcome(), (expected.0, expected.1.to_owned()));
    }
    let root = map(3).root().cid();
    assert_eq!(gateway.post("/v1/cas/car", &request_of(&[root])).await.outcome(), (400, "kind_mismatch".to_owned()));
    for method in ["GET", "HEAD"] {
        for target in ["/v1/cas/car", "/v1/pages/car"] {
            let got = gateway.send(method, target, &[], b"").await;
            assert_eq!(got.field("content-length"), format!("cold {method} {target}").len().to_string());
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_one_part_behind_what_is_read_ahead() {
    let (stored, cids) = stored_of(&[40 * MIB]);
    let gateway = start(stored, Options::default()).await;
    let cid = cids[0];
    for is_car in [false, true] {
        gateway.store.control().chunk_sizes.clear();
        let answer = match is_car {
            true => gateway.begin("POST", "/v1/cas/car", &[], request_of(&cids).as_bytes()).await,
            false => gateway.begin("GET", &format!("/v1/cas/{cid}"), &[], b"").await,
        };
        let read = || gateway.store.control().chunk_sizes.len();
        until(|| read() >= 2).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let unread = read();
        assert!(unread <= 12, "{unread} parts: what buffers of sockets take, and one more");
        drop(answer);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let after = read();
        assert!(after <= unread + 1, "nothing is read for a client that has left");
        // It is whole for the next one.
        let got = match is_car {
            true => gateway.post("/v1/cas/car", &request_of(&cids)).await.body.len() - payload_car_header().len() - 40,
            false => gateway.get(&format!("/v1/cas/{cid}")).await.body.len(),
        };
        assert_eq!(got, 40 * MIB);
    }
}

#[tokio::test]
async fn the_next_part_is_read_while_one_is_sent() {
    let (stored, cids) = stored_of(&[3 * MIB]);
    let gateway = start(stored, Options::default()).await;
    gateway.store.control().permits = Some(2); // the size, and the first part
    let mut answer = gateway.begin("GET", &format!("/v1/cas/{}", cids[0]), &[], b"").await.into_body();
    // The second part is requested before the client has read anything of the first.
    until(|| gateway.store.control().visits == 2).await;
    gateway.store.permit(1);
    until(|| gateway.store.control().visits == 3).await;
    let mut size = 0;
    gateway.store.permit(10);
    while let Some(frame) = answer.frame().await {
        size += frame.expect("a whole answer").into_data().map_or(0, |data| data.len());
    }
    assert_eq!(size, 3 * MIB);
}
