//! Hot writes: what shares a batch, what becomes of writes nobody waits for, and which requests are answered by the front.
#![cfg(unix)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use coregw_core::Digest;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_front::budget::{Account, Budget, Capacity};
use coregw_front::gateway::Writers;
use coregw_front::peers::Proxies;
use coregw_front::reads::Failure;
use coregw_front::writes::{CHUNK_BYTES, NewTrees, SHORT_PAYLOAD_BYTES, WriteBatch, Writes, Written};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/rules.rs"]
mod rules;
#[path = "support/store.rs"]
mod store;

use gateway::{LONGEST_PAYLOAD, Options, Running, start};
use rules::{SOON, until};
use store::Stored;

fn budget() -> Arc<Budget> {
    Budget::new(Capacity { total: 64 << 20, per_address: 64 << 20, largest: 1 << 20 }, Arc::new(Proxies::default()))
}

fn held(budget: &Arc<Budget>, size: usize) -> Account {
    let mut account = budget.account(None);
    account.add(size).expect("room");
    account
}

/// The same outcome for all payloads of a batch.
fn all(batch: &WriteBatch, outcome: &Result<(), Failure>) -> Result<Written, Failure> {
    let (payloads, chunks) = (vec![outcome.clone(); batch.payloads.len()], vec![outcome.clone(); batch.chunks.len()]);
    Ok(Written { payloads, chunks, ..Written::default() })
}

fn names(batch: &WriteBatch) -> Vec<u8> {
    batch.payloads.iter().map(|(name, _)| name[0]).collect()
}

#[tokio::test]
async fn what_waits_shares_a_batch_also_when_its_client_has_left() {
    let (writes, budget) = (Writes::new(true), budget());
    let put = |name| writes.put(vec![name], Bytes::from_static(b"payload"), held(&budget, 7));
    let (first, left, third) = (put(1), put(2), put(3));
    drop(left);
    let batch = writes.next().expect("three wait");
    assert_eq!(names(&batch), [1, 2, 3]);
    let later = put(4);
    assert_eq!(budget.held(), 28);
    writes.done(batch.id, all(&batch, &Ok(())));
    writes.done(batch.id, Err(Failure::Internal)); // it is over
    assert_eq!((first.found().await, third.found().await), (Ok(()), Ok(())));
    assert_eq!(budget.held(), 7);
    let batch = writes.next().expect("one waits");
    writes.done(batch.id, Err(Failure::Full("no room".to_owned())));
    assert_eq!(later.found().await, Err(Failure::Full("no room".to_owned())));
    assert_eq!(budget.held(), 0);
}

#[test]
fn what_is_written_after_the_end_of_the_runtime_is_told_nobody() {
    let (writes, budget) = (Writes::new(true), budget());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let written = runtime.block_on(async { writes.put(vec![1], Bytes::from_static(b"payload"), held(&budget, 7)) });
    let batch = writes.next().expect("one waits");
    drop(runtime);
    writes.done(batch.id, all(&batch, &Ok(())));
    assert_eq!(budget.held(), 0);
    drop(written);
}

#[tokio::test]
async fn a_batch_waits_for_as_many_writes_as_were_in_progress_and_no_longer_than_the_queue_lives() {
    let (writes, budget) = (Writes::gathering(1e6, true), budget());
    let put = |name| writes.put(vec![name], Bytes::from_static(b"payload"), held(&budget, 7));
    let next = || {
        let writes = writes.clone();
        thread::spawn(move || writes.next())
    };
    let _alone = put(1);
    let batch = writes.next().expect("nothing was in progress before");
    let _meanwhile = put(2);
    thread::sleep(Duration::from_millis(1)); // the next one may wait a thousand seconds
    writes.done(batch.id, all(&batch, &Ok(())));
    let taken = next();
    let _again = put(3);
    let batch = taken.join().expect("no panic").expect("two wait");
    assert_eq!(names(&batch), [2, 3]);
    thread::sleep(Duration::from_millis(1));
    writes.done(batch.id, all(&batch, &Ok(())));
    let taken = next();
    let failed = put(4);
    writes.close();
    assert_eq!(taken.join().expect("no panic"), None);
    assert!(matches!(failed.found().await, Err(Failure::Unavailable(_))));
}

#[tokio::test]
async fn a_batch_is_bounded_and_the_end_of_the_queue_fails_what_was_not_taken() {
    let (writes, budget) = (Writes::new(true), budget());
    let put = |name| writes.put(vec![name], Bytes::from(vec![0; SHORT_PAYLOAD_BYTES]), held(&budget, 1));
    let replies: Vec<_> = (0..20).map(put).collect();
    let batch = writes.next().expect("20 wait");
    assert_eq!(names(&batch), (0..16).collect::<Vec<_>>()); // a mebibyte
    writes.close();
    assert_eq!(writes.next(), None);
    writes.done(batch.id, all(&batch, &Ok(())));
    let closed = Err(Failure::Unavailable("the store is closed".to_owned()));
    for (number, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.found().await, if number < 16 { Ok(()) } else { closed.clone() }, "{number}");
    }
    assert_eq!(put(0).found().await, closed);
    assert_eq!(budget.held(), 0);
}

#[tokio::test]
async fn each_write_of_a_batch_has_an_outcome_of_its_own_and_none_is_a_failure() {
    let (writes, budget) = (Writes::new(true), budget());
    let no_room = || Failure::Full("no room".to_owned());
    let payload = writes.put(vec![1], Bytes::new(), held(&budget, 1));
    let trees: Vec<_> = (0..3).map(|_| writes.store(NewTrees::default(), held(&budget, 10))).collect();
    let renewals: Vec<_> = (0..2).map(|_| writes.renew(Vec::new())).collect();
    let batch = writes.next().expect("six wait");
    assert_eq!((batch.payloads.len(), batch.trees.len(), batch.renewals.len()), (1, 3, 2));
    let written = Written {
        payloads: vec![Err(no_room())],
        trees: vec![Ok(7), Err(no_room())],
        renewals: vec![Ok(vec![true, false])],
        ..Written::default()
    };
    writes.done(batch.id, Ok(written));
    assert_eq!(payload.found().await, Err(no_room()));
    let mut outcomes = Vec::new();
    for each in trees {
        outcomes.push(each.found().await.map(|(now, account)| {
            assert_eq!(budget.held(), 10, "the account of the only one that was stored");
            drop(account);
            now
        }));
    }
    assert_eq!(outcomes, [Ok(7), Err(no_room()), Err(Failure::Internal)]);
    let mut held = Vec::new();
    for each in renewals {
        held.push(each.found().await);
    }
    assert_eq!(held, [Ok(vec![true, false]), Err(Failure::Internal)]);
    assert_eq!(budget.held(), 0);
}

/// A gateway whose writes have this outcome.
async fn writing(writers: Writers, outcome: Result<(), Failure>) -> Running {
    serving(Options { is_read_only: false, writers, ..Options::default() }, outcome).await
}

async fn serving(options: Options, outcome: Result<(), Failure>) -> Running {
    let gateway = start(Stored::default(), options).await;
    let writes = Arc::clone(&gateway.writes);
    thread::spawn(move || {
        while let Some(batch) = writes.next() {
            writes.done(batch.id, all(&batch, &outcome));
        }
    });
    gateway
}

#[tokio::test]
async fn a_short_payload_is_stored_under_its_cid() {
    let gateway = writing(Writers::Anybody, Ok(())).await;
    let cases = [
        ("/v1/cas", Codec::RAW, Function::Sha2_256),
        ("/v1//%63as?hash=blake3&codec=0x71", Codec::parse("dag-cbor").expect("a codec"), Function::Blake3),
        ("/v1/cas?hash=identity", Codec::RAW, Function::Identity),
    ];
    for (target, codec, function) in cases {
        let got = gateway.post(target, "hello").await;
        let cid = payload::cid(b"hello", codec, function).expect("short").text();
        assert_eq!((got.status, got.text()), (201, &*format!("{{\"cid\":\"{cid}\"}}")), "{target}");
        assert_eq!(got.field("location"), format!("/v1/cas/{cid}"));
        assert_eq!(got.field("content-type"), "application/json");
    }
    for (target, fields, code) in [
        ("/v1/cas?codec=nothing", &[][..], (400, "invalid_codec")),
        ("/v1/cas?hash=md5", &[], (400, "invalid_request")),
        ("/v1/cas?other=1", &[], (400, "invalid_request")),
        ("/v1/cas", &[("content-encoding", "gzip")], (415, "unsupported_media_type")),
    ] {
        let got = gateway.send("POST", target, fields, b"hello").await;
        assert_eq!(got.outcome(), (code.0, code.1.to_owned()), "{target}");
    }
    let long = "x".repeat(129);
    assert_eq!(gateway.post("/v1/cas?hash=identity", &long).await.outcome(), (413, "too_large".to_owned()));
}

#[tokio::test]
async fn why_nothing_was_stored_is_said() {
    for (failure, status, code) in [
        (Failure::Full("no room".to_owned()), 507, "storage_full"),
        (Failure::Unavailable("later".to_owned()), 503, "unavailable"),
        (Failure::Internal, 500, "internal"),
    ] {
        let gateway = writing(Writers::Anybody, Err(failure)).await;
        assert_eq!(gateway.post("/v1/cas", "hello").await.outcome(), (status, code.to_owned()));
    }
}

#[tokio::test]
async fn what_the_front_does_not_know_to_be_allowed_or_short_is_the_applications() {
    let digest = |token: &[u8]| {
        let named = payload::cid(token, Codec::RAW, Function::Sha2_256).expect("any length");
        Digest(named.digest().try_into().expect("32 bytes"))
    };
    let gateway = writing(Writers::Holders(vec![digest(b"other"), digest(b"secret")]), Ok(())).await;
    for (fields, is_hot) in [
        (&[][..], false),
        (&[("authorization", "Bearer secret")], true),
        (&[("authorization", "bearer  secret ")], true),
        (&[("authorization", "Bearer wrong")], false),
        (&[("authorization", "Bearer")], false),
        (&[("authorization", "Basic secret")], false),
        (&[("authorization", "Bearer secret"), ("authorization", "Bearer secret")], false),
    ] {
        let got = gateway.send("POST", "/v1/cas", fields, b"hello").await;
        assert_eq!(got.status == 201, is_hot, "{fields:?} {got:?}");
        assert!(is_hot || got.text() == "cold POST /v1/cas", "{got:?}");
    }
    let most = "x".repeat(SHORT_PAYLOAD_BYTES);
    for (take_chunks, is_hot) in [(false, false), (true, true)] {
        let open = serving(Options { is_read_only: false, take_chunks, ..Options::default() }, Ok(())).await;
        assert_eq!(open.post("/v1/cas", &most).await.status, 201);
        let got = open.post("/v1/cas", &format!("{most}x")).await;
        assert_eq!(got.status == 201, is_hot, "{got:?}");
        assert!(is_hot || got.text() == "cold POST /v1/cas", "{got:?}");
    }
    let read_only = start(Stored::default(), Options::default()).await;
    assert_eq!(read_only.post("/v1/cas", "hello").await.text(), "cold POST /v1/cas");
}

#[tokio::test]
async fn a_payload_whose_client_leaves_while_it_waits_is_stored() {
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    let mut client = TcpStream::connect(gateway.address).await.expect("a connection");
    let request = b"POST /v1/cas HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    client.write_all(request).await.expect("room");
    let writes = Arc::clone(&gateway.writes);
    let batch = spawn_blocking(move || writes.next()).await.expect("no panic").expect("one waits");
    assert_eq!(batch.payloads.len(), 1);
    client.shutdown().await.expect("it is open");
    gateway.writes.done(batch.id, all(&batch, &Ok(())));
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "a half-closed client is answered");
}

#[tokio::test]
async fn payloads_that_a_client_of_http_2_sends_at_once_wait_together() {
    const STREAMS: usize = 40;
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    let stream = TcpStream::connect(gateway.address).await.expect("a connection");
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    let send = |number: usize| {
        let mut sender = sender.clone();
        let body = Full::new(Bytes::from(number.to_string()));
        let request = Request::post("http://localhost/v1/cas").body(body).expect("a request");
        tokio::spawn(async move { sender.send_request(request).await.map(|answer| answer.status().as_u16()) })
    };
    let answers: Vec<_> = (0..STREAMS).map(send).collect();
    let writes = Arc::clone(&gateway.writes);
    let taking = spawn_blocking(move || {
        let (mut batches, mut count) = (Vec::new(), 0);
        while count < STREAMS {
            let Some(batch) = writes.next() else { break };
            count += batch.payloads.len();
            batches.push(batch);
        }
        batches
    });
    let batches = timeout(SOON, taking).await.expect("all of them wait, none is answered").expect("no panic");
    batches.iter().for_each(|batch| gateway.writes.done(batch.id, all(batch, &Ok(()))));
    for answer in answers {
        assert_eq!(answer.await.expect("no panic").expect("an answer"), 201);
    }
}

/// The size of each part of a payload, whether the payload ends with it, and the hash of all of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    parts: Vec<(usize, bool)>,
    name: Vec<u8>,
    is_dropped: bool,
}

/// Takes what is written of one payload until it is stored or dropped, and fails the part number `fails`.
fn take_payload(writes: &Writes, fails: usize) -> Taken {
    let (mut taken, mut bytes) = (Taken::default(), Vec::new());
    while taken.name.is_empty() && !taken.is_dropped {
        let batch = writes.next().expect("the payload has not ended");
        let (parts, size) = (batch.payloads.len() + batch.chunks.len(), taken.parts.len());
        assert_eq!(parts + batch.dropped.len(), 1, "one part after the other");
        for (name, payload) in &batch.payloads {
            bytes.extend_from_slice(payload);
            taken.parts.push((payload.len(), true));
            taken.name.clone_from(name);
        }
        for chunk in &batch.chunks {
            bytes.extend_from_slice(&chunk.bytes);
            taken.parts.push((chunk.bytes.len(), chunk.ends.is_some()));
            taken.name = chunk.ends.clone().filter(|_| size != fails).unwrap_or_default();
        }
        taken.is_dropped = !batch.dropped.is_empty();
        let outcome = if size == fails { Err(Failure::Full("no room".to_owned())) } else { Ok(()) };
        writes.done(batch.id, all(&batch, &outcome));
    }
    if !taken.name.is_empty() {
        let cid = payload::cid(&bytes, Codec::RAW, Function::Sha2_256).expect("any length");
        assert_eq!(taken.name, cid.multihash());
    }
    taken
}

fn taking(gateway: &Running, fails: usize) -> thread::JoinHandle<Taken> {
    let writes = Arc::clone(&gateway.writes);
    thread::spawn(move || take_payload(&writes, fails))
}

const NONE_FAILS: usize = usize::MAX;

#[tokio::test]
async fn a_long_payload_is_written_chunk_by_chunk() {
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    for (length, parts) in [
        (CHUNK_BYTES, vec![(CHUNK_BYTES, true)]),
        (CHUNK_BYTES + 1, vec![(CHUNK_BYTES, false), (1, true)]),
        (2 * CHUNK_BYTES, vec![(CHUNK_BYTES, false), (CHUNK_BYTES, true)]),
        (2 * CHUNK_BYTES + 77, vec![(CHUNK_BYTES, false), (CHUNK_BYTES, false), (77, true)]),
    ] {
        let body: String = (0..length).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        let taken = taking(&gateway, NONE_FAILS);
        assert_eq!(gateway.post("/v1/cas", &body).await.status, 201);
        assert_eq!(taken.join().expect("no panic").parts, parts);
    }
    let body = "x".repeat(2 * CHUNK_BYTES);
    let got = gateway.post("/v1/cas?hash=identity", &body).await;
    assert_eq!(got.outcome(), (413, "too_large".to_owned()), "nothing of it is written");
}

#[tokio::test]
async fn a_chunk_that_has_begun_is_counted_whole() {
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    let taken = taking(&gateway, NONE_FAILS);
    let mut client = TcpStream::connect(gateway.address).await.expect("a connection");
    let head = format!("POST /v1/cas HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 3 * CHUNK_BYTES);
    client.write_all(head.as_bytes()).await.expect("room");
    client.write_all(&vec![0; CHUNK_BYTES + 1]).await.expect("room");
    until(|| gateway.budget.held() == CHUNK_BYTES).await; // the first chunk is written, of the second a byte has arrived
    drop(client);
    spawn_blocking(|| taken.join()).await.expect("no panic").expect("no panic");
    until(|| gateway.budget.held() == 0).await; // the connection may end after its upload
}

#[tokio::test]
async fn what_was_written_of_a_payload_that_fails_is_dropped() {
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    let body = "x".repeat(3 * CHUNK_BYTES);
    for fails in 0..3 {
        let taken = taking(&gateway, fails);
        assert_eq!(gateway.post("/v1/cas", &body).await.outcome(), (507, "storage_full".to_owned()));
        let taken = taken.join().expect("no panic");
        assert_eq!((taken.parts.len(), taken.is_dropped), (fails + 1, true));
    }
}

#[tokio::test]
async fn what_was_written_of_a_payload_that_is_too_long_or_whose_client_leaves_is_dropped() {
    let gateway = start(Stored::default(), Options { is_read_only: false, ..Options::default() }).await;
    let body = "x".repeat(LONGEST_PAYLOAD + 1);
    assert_eq!(gateway.post("/v1/cas", &body).await.status, 413, "its length is declared: nothing is written");
    let head = "POST /v1/cas HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (length, is_answered) in [(LONGEST_PAYLOAD + 1, true), (CHUNK_BYTES + 1, false)] {
        let mut client = TcpStream::connect(gateway.address).await.expect("a connection");
        let taken = taking(&gateway, NONE_FAILS);
        client.write_all(head.as_bytes()).await.expect("room");
        client.write_all(format!("{length:x}\r\n{}", &body[..length]).as_bytes()).await.expect("room");
        if is_answered {
            let mut answer = [0; 13];
            client.read_exact(&mut answer).await.expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1 413 ");
        }
        drop(client);
        let taken = spawn_blocking(|| taken.join()).await.expect("no panic").expect("no panic");
        assert!(taken.is_dropped && !taken.parts.is_empty(), "{taken:?}");
        until(|| gateway.budget.held() == 0).await;
    }
}
