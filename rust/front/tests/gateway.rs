//! Hot requests on a socket: what each is answered, and what happens while the store is asked.
#![cfg(unix)]

use std::sync::Arc;
use std::time::Duration;

use coregw_core::{Cid, RootCid};
use coregw_front::counts::Event;
use coregw_front::reads::Failure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/rules.rs"]
mod rules;
#[path = "support/store.rs"]
mod store;

use gateway::{Got, Options, Running, start};
use rules::{SOON, until};
use store::{Stored, map, target};

/// A gateway of a map of so many arcs, and its root.
async fn gateway_of(count: u64, options: Options) -> (Running, RootCid) {
    let mut stored = Stored::default();
    let root = stored.add(&map(count));
    stored.add_payload(1, b"a small payload".to_vec());
    stored.add_payload(2, (0..3_000_000_u32).map(|at| (at % 251) as u8).collect());
    (start(stored, options).await, root)
}

fn resolve_request(root: &RootCid, number: u64) -> String {
    let segments = [format!("d{}", number % 10), format!("f{number:05}")];
    json!({"profile": "core.resolve/v0alpha1", "root": root.to_string(), "segments": segments}).to_string()
}

fn json_of(got: &Got) -> Value {
    serde_json::from_slice(&got.body).unwrap_or_else(|_| panic!("JSON: {got:?}"))
}

#[tokio::test]
async fn queries_are_answered_with_proofs_whether_pages_are_cached_or_not() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    for _ in 0..2 {
        let request = resolve_request(&root, 1234);
        let got = gateway.post("/v1/resolve", &request).await;
        let found = coregw_ops::verify_resolve(request.as_bytes(), &got.body).expect("proven");
        assert_eq!(found, target(1234));
        assert_eq!((got.status, got.field("content-type")), (200, "application/json"));
        assert_eq!(got.field("x-content-type-options"), "nosniff");
        // The same by URL, for ever.
        let url = format!("/v1/resolve/{root}?path=d4/f01234");
        let by_url = gateway.get(&url).await;
        assert_eq!((by_url.status, &by_url.body), (200, &got.body));
        assert_eq!(by_url.field("cache-control"), "public, max-age=31536000, immutable");
        let etag = by_url.field("etag").to_owned();
        assert_eq!(etag.len(), 34);
        let head = gateway.send("HEAD", &url, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.fields, by_url.fields);
        let known = gateway.send("GET", &url, &[("if-none-match", &etag)], b"").await;
        assert_eq!((known.status, known.body.len(), known.field("etag")), (304, 0, &*etag));
        let other = gateway.send("GET", &url, &[("if-match", "\"other\"")], b"").await;
        assert_eq!(other.outcome(), (412, "precondition_failed".to_owned()));
    }
    let read = json!({"profile": "core.read/v0alpha1", "root": root.to_string(),
                      "query": {"kind": "map_key", "segments": ["d4", "f01234"]}});
    let got = gateway.post("/v1/read", &read.to_string()).await;
    coregw_ops::verify_read(read.to_string().as_bytes(), &got.body).expect("proven");
    assert_eq!(gateway.get(&format!("/v1/read/{root}?path=d4/f01234")).await.body, got.body);
    let scan = json!({"profile": "core.scan/v0alpha1", "root": root.to_string(), "prefix": ["d4"], "limit": 10});
    let got = gateway.post("/v1/scan", &scan.to_string()).await;
    assert_eq!(coregw_ops::verify_scan(scan.to_string().as_bytes(), &got.body).expect("proven").0.entries.len(), 10);
    assert_eq!(gateway.get(&format!("/v1/scan/{root}?prefix=d4&limit=10")).await.body, got.body);
    let key = json!({"profile": "core.map-proof/v0alpha1", "root": root.to_string(), "key": ["d4", "none"]});
    let got = gateway.post("/v1/map-proof", &key.to_string()).await;
    coregw_ops::verify_map_proof(key.to_string().as_bytes(), &got.body).expect("proven");
    assert_eq!(got.field("vary"), "Accept");
    assert_eq!(gateway.get(&format!("/v1/map-proof/{root}?path=d4/none")).await.body, got.body);
    let (key, accept) = (key.to_string(), [("accept", "application/octet-stream")]);
    let bare = gateway.send("POST", "/v1/map-proof", &accept, key.as_bytes()).await;
    assert_eq!((bare.status, bare.field("content-type")), (200, "application/octet-stream"));
    assert!(bare.body.len() < got.body.len());
    let batch = json!({"root": root.to_string(), "paths": [["d4", "f01234"], ["d4", "none"]]});
    let got = json_of(&gateway.post("/v1/resolve/batch", &batch.to_string()).await);
    assert_eq!(got["results"][0]["result"]["target"], json!(target(1234).text()));
    assert_eq!(got["results"][1]["error"]["error"], json!("path_not_found"));
    let absent = gateway.get(&format!("/v1/read/{root}?path=d4/none")).await;
    assert_eq!(absent.outcome(), (404, "path_not_found".to_owned()));
    assert_eq!(absent.field("cache-control"), "public, max-age=31536000, immutable");
    assert!(json_of(&absent)["details"].is_object());
    let absent = gateway.post("/v1/read", &read.to_string().replace("f01234", "none")).await;
    assert_eq!((absent.status, absent.field("cache-control")), (404, "no-store"));
}

#[tokio::test]
async fn results_are_verified() {
    let (gateway, root) = gateway_of(50, Options::default()).await;
    let request = resolve_request(&root, 7);
    let result = gateway.post("/v1/resolve", &request).await;
    let envelope = |request: &str, result: &str| format!("{{\"request\":{request},\"result\":{result}}}");
    let got = gateway.post("/v1/verify/resolve", &envelope(&request, result.text())).await;
    assert_eq!(got.text(), "{\"profile\":\"core.resolve/v0alpha1\",\"valid\":true}");
    assert_eq!(got.field("x-core-verification-role"), "diagnostic");
    let got = gateway.post("/v1/verify/resolve", &envelope(&resolve_request(&root, 8), result.text())).await;
    let verdict = json_of(&got);
    assert_eq!((&verdict["valid"], verdict["error"].is_string()), (&json!(false), true));
    let got = gateway.post("/v1/verify/resolve", "{}").await;
    assert_eq!(got.outcome(), (400, "invalid_request".to_owned()));
    assert_eq!(got.field("x-core-verification-role"), "diagnostic");
    let got = gateway.post("/v1/verify/read", &envelope(&request, result.text())).await;
    assert_eq!(got.outcome(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn payloads_are_sent_whole_in_parts_and_from_memory() {
    let (gateway, _) = gateway_of(1, Options::default()).await;
    let (small, large, absent) = (target(1), target(2), target(3));
    let url = |cid: &Cid| format!("/v1/cas/{cid}");
    let whole: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..2 {
        let got = gateway.get(&url(&small)).await;
        assert_eq!((got.status, got.text()), (200, "a small payload"));
        assert_eq!(got.field("etag"), format!("\"{small}\""));
        assert_eq!((got.field("accept-ranges"), got.field("content-length")), ("bytes", "15"));
        assert_eq!(got.field("content-type"), "application/octet-stream");
    }
    assert_eq!(gateway.store.control().visits, 1);
    let got = gateway.get(&url(&large)).await;
    assert!(got.body == whole && got.field("content-length") == "3000000");
    for (range, expected) in
        [("bytes=2-5", 2..6), ("bytes=1048570-1048580", 1_048_570..1_048_581), ("bytes=-7", 2_999_993..3_000_000)]
    {
        let got = gateway.send("GET", &url(&large), &[("range", range)], b"").await;
        assert_eq!((got.status, &got.body[..]), (206, &whole[expected.clone()]), "{range}");
        assert_eq!(got.field("content-range"), format!("bytes {}-{}/3000000", expected.start, expected.end - 1));
    }
    let got = gateway.send("GET", &url(&small), &[("range", "bytes=99-")], b"").await;
    assert_eq!(got.outcome(), (416, "range_not_satisfiable".to_owned()));
    assert_eq!(got.field("content-range"), "bytes */15");
    let head = gateway.send("HEAD", &url(&large), &[("range", "bytes=2-5")], b"").await;
    assert_eq!((head.status, head.body.len(), head.field("content-length")), (200, 0, "3000000"));
    let got = gateway.send("GET", &url(&large), &[("if-none-match", "*")], b"").await;
    assert_eq!((got.status, got.field("content-length")), (304, ""));
    let got = gateway.get(&url(&absent)).await;
    assert_eq!(got.outcome(), (404, "payload_not_found".to_owned()));
    // An identity CID contains its payload.
    let visits = gateway.store.control().visits;
    let inside = Cid::of_payload(0x55, coregw_core::payload::Function::Identity, b"inside");
    assert_eq!(gateway.get(&url(&inside)).await.text(), "inside");
    assert_eq!(gateway.store.control().visits, visits);
    // What was collected is not served from memory.
    gateway.store.control().stored.payloads.clear();
    assert_eq!(gateway.get(&url(&small)).await.status, 200);
    gateway.cache.expire();
    assert_eq!(gateway.get(&url(&small)).await.status, 404);
}

#[tokio::test]
async fn a_payload_that_fails_on_the_way_is_not_taken_for_whole() {
    use http_body_util::BodyExt;
    let (gateway, _) = gateway_of(1, Options::default()).await;
    gateway.store.control().permits = Some(2);
    let response = gateway.begin("GET", &format!("/v1/cas/{}", target(2)), &[], b"").await;
    assert_eq!(response.status(), 200);
    gateway.store.control().stored.failure = Some(Failure::Damaged("a chunk".to_owned()));
    gateway.store.permit(9);
    assert!(response.into_body().collect().await.is_err());
    let lines = gateway.log.take();
    assert!(matches!(&lines[..], [line] if matches!(&line.event, Event::Failed(what) if what == "a chunk")));
}

#[tokio::test]
async fn pages_and_roots_are_sent_by_name() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    let hex: String = root.digest.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let page = gateway.get(&format!("/v1/pages/{hex}")).await;
    assert_eq!((page.status, page.field("etag")), (200, &*format!("\"{hex}\"")));
    let by_root = gateway.get(&format!("/v1/roots/{root}")).await;
    assert_eq!((by_root.status, &by_root.body), (200, &page.body));
    assert_eq!(by_root.field("etag"), format!("\"{root}\""));
    let head = gateway.send("HEAD", &format!("/v1/roots/{root}"), &[], b"").await;
    assert_eq!((head.fields, head.body.len()), (by_root.fields, 0));
    let list = RootCid { kind: coregw_core::Kind::List, ..root };
    gateway.store.control().stored.roots.insert(list, true);
    for (target, expected) in [
        (format!("/v1/pages/{}", hex.to_uppercase()), (400, "invalid_request")),
        (format!("/v1/pages/{}", "0".repeat(64)), (404, "page_not_found")),
        (format!("/v1/pages/{hex}?x=1"), (400, "invalid_request")),
        (format!("/v1/roots/{}", target(1)), (400, "kind_mismatch")),
        ("/v1/roots/x".to_owned(), (400, "invalid_cid")),
        (format!("/v1/roots/{}", map(3).root()), (404, "root_not_found")),
        (format!("/v1/roots/{list}"), (404, "root_not_found")),
    ] {
        let got = gateway.get(&target).await;
        assert_eq!(got.outcome(), (expected.0, expected.1.to_owned()), "{target}");
    }
    gateway.store.control().stored.pages.insert(root.digest, b"damaged".to_vec());
    for target in [format!("/v1/pages/{hex}"), format!("/v1/roots/{root}")] {
        let got = gateway.get(&target).await;
        assert_eq!(got.outcome(), (500, "internal".to_owned()));
        assert!(!got.field("x-request-id").is_empty());
    }
    let events: Vec<Event> = gateway.log.take().into_iter().map(|line| line.event).collect();
    assert!(
        events.len() == 2 && events.iter().all(|event| matches!(event, Event::Failed(what) if what.contains("page")))
    );
}

#[tokio::test]
async fn less_is_read_at_once_for_clients_while_many_do_not_read() {
    let mut stored = Stored::default();
    let payload: Vec<u8> = (0..2_500_000_u32).map(|at| (at % 251) as u8).collect();
    let cid = stored.add_payload(1, payload.clone());
    let gateway = start(stored, Options::default()).await;
    let request = format!("GET /v1/cas/{cid} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut clients = Vec::new();
    for _ in 0..60 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a socket");
        let mut client = socket.connect(gateway.address).await.expect("a connection");
        client.write_all(request.as_bytes()).await.expect("room");
        clients.push(client);
    }
    until(|| gateway.store.control().chunk_sizes.len() >= clients.len()).await;
    let sizes = std::mem::take(&mut gateway.store.control().chunk_sizes);
    assert!(sizes.iter().filter(|size| **size == 1 << 20).count() <= 33, "{sizes:?}");
    assert!(sizes.contains(&(256 << 10)), "{sizes:?}");
    let mut received = Vec::new();
    let mut last = clients.pop().expect("a client");
    last.read_to_end(&mut received).await.expect("an answer");
    assert!(received.ends_with(&payload));
    drop((last, clients));
    let freeing = async {
        loop {
            assert_eq!(gateway.get(&format!("/v1/cas/{cid}")).await.body, payload);
            if gateway.store.control().chunk_sizes.ends_with(&[1 << 20, 1 << 20, 2_500_000 % (1 << 20)]) {
                return;
            }
        }
    };
    timeout(SOON, freeing).await.expect("what they held is free");
}

#[tokio::test]
async fn which_payloads_are_held_is_looked_up_if_nobody_may_write() {
    let (gateway, _) = gateway_of(1, Options::default()).await;
    let identity = Cid::of_payload(0x55, coregw_core::payload::Function::Identity, b"x");
    let cids = [target(3), target(1), identity, target(2)];
    let request = json!({"profile": "cas.has-batch/v0alpha1", "cids": cids.map(|cid| cid.text())}).to_string();
    let got = gateway.send("POST", "/v1/cas/has", &[("content-type", "application/json")], request.as_bytes()).await;
    let expected: Vec<Value> = cids
        .iter()
        .zip([false, true, true, true])
        .map(|(cid, held)| json!({"cid": cid.text(), "present": held}))
        .collect();
    assert_eq!(json_of(&got), json!({"profile": "cas.has-batch/v0alpha1", "results": expected}));
    let binary: Vec<u8> = cids.iter().flat_map(|cid| cid.as_bytes().to_vec()).collect();
    let got = gateway.send("POST", "/v1/cas/has", &[], &binary).await;
    assert_eq!((got.status, &got.body[..]), (200, &[0b1110][..]));
    let got = gateway.send("POST", "/v1/cas/has", &[], &binary[1..]).await;
    assert_eq!(got.outcome(), (400, "invalid_cid".to_owned()));
    assert_eq!(json_of(&got)["details"], json!({"index": 0}));
    let (writable, _) = gateway_of(1, Options { is_read_only: false, ..Options::default() }).await;
    assert_eq!(writable.send("POST", "/v1/cas/has", &[], &binary).await.text(), "cold POST /v1/cas/has");
}

/// Method, target, fields and body of a request; status and code of the answer.
type Case<'a> = (&'a str, String, &'a [(&'a str, &'a str)], &'a str, (u16, &'a str));

#[tokio::test]
async fn requests_are_refused_as_by_the_application() {
    let (gateway, root) = gateway_of(50, Options { max_nodes: 100, ..Options::default() }).await;
    let resolve = resolve_request(&root, 7);
    let long = " ".repeat((1 << 20) + 1);
    let cases: [Case<'_>; 14] = [
        ("POST", "/v1/resolve".into(), &[], "", (400, "invalid_request")),
        ("POST", "/v1/resolve".into(), &[], "{}", (400, "invalid_request")),
        ("POST", "/v1/resolve?x=1".into(), &[], &resolve, (400, "invalid_request")),
        ("POST", "/v1/resolve".into(), &[("content-type", "text/plain")], &resolve, (415, "unsupported_media_type")),
        ("POST", "/v1/resolve".into(), &[("content-encoding", "gzip")], &resolve, (415, "unsupported_media_type")),
        ("POST", "/v1/resolve".into(), &[], &long, (413, "too_large")),
        ("GET", format!("/v1/resolve/{}?path=a", target(1)), &[], "", (400, "kind_mismatch")),
        ("GET", "/v1/resolve/x?path=a".into(), &[], "", (400, "invalid_cid")),
        ("GET", format!("/v1/resolve/{root}?path=a//b"), &[], "", (400, "invalid_path")),
        ("GET", format!("/v1/read/{root}"), &[], "", (400, "invalid_request")),
        ("GET", format!("/v1/read/{root}?path=a&index=1"), &[], "", (400, "invalid_request")),
        ("GET", format!("/v1/read/{root}?index=1"), &[], "", (400, "kind_mismatch")),
        ("GET", format!("/v1/scan/{root}?limit=x"), &[], "", (400, "invalid_request")),
        ("GET", format!("/v1/scan/{}", map(3).root()), &[], "", (404, "root_not_found")),
    ];
    for (method, target, fields, body, (status, code)) in &cases {
        let got = gateway.send(method, target, fields, body.as_bytes()).await;
        assert_eq!(got.outcome(), (*status, (*code).to_owned()), "{method} {target} {}", got.text());
        assert_eq!(got.field("cache-control"), "no-store");
    }
    let got = gateway.get(&format!("/v1/scan/{root}")).await;
    assert_eq!(got.outcome(), (413, "too_large".to_owned()), "{}", got.text());
    let counted: u64 = gateway.codes.counts().iter().map(|(_, count)| count).sum();
    assert_eq!(counted, cases.len() as u64 + 1);
    for (method, target) in
        [("OPTIONS", "/v1/resolve"), ("GET", "/v1/resolve"), ("POST", "/v1/cas"), ("GET", "/healthz")]
    {
        assert!(gateway.send(method, target, &[], b"").await.text().starts_with("cold"));
    }
}

#[tokio::test]
async fn a_root_that_expires_while_it_is_read_is_not_found() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    let request = resolve_request(&root, 1234);
    // The record is found, and expires before the answer of the store is there; then its pages are removed.
    let (cache, store) = (Arc::clone(&gateway.cache), Arc::clone(&gateway.store));
    gateway.store.control().after_read = Some(Box::new(move || {
        let mut control = store.control();
        control.stored.roots.clear();
        control.stored.pages.clear();
        cache.expire();
    }));
    let got = gateway.post("/v1/resolve", &request).await;
    assert_eq!(got.outcome(), (404, "root_not_found".to_owned()), "{}", got.text());
    assert!(gateway.cache.is_held(&root).is_none());
}

#[tokio::test]
async fn missing_and_damaged_pages_are_failures_of_the_gateway() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    let top = gateway.store.control().stored.pages[&root.digest].clone();
    gateway.store.control().stored.pages.retain(|digest, _| *digest == root.digest);
    let missing = gateway.post("/v1/resolve", &resolve_request(&root, 1234)).await;
    assert_eq!(missing.outcome(), (500, "internal".to_owned()));
    let (other, root) = gateway_of(5000, Options::default()).await;
    other.store.control().stored.pages.values_mut().for_each(|page| page.clone_from(&top));
    let damaged = other.post("/v1/resolve", &resolve_request(&root, 1234)).await;
    assert_eq!(damaged.outcome(), (500, "internal".to_owned()));
    for gateway in [gateway, other] {
        let lines = gateway.log.take();
        assert!(matches!(&lines[..], [line] if matches!(&line.event, Event::Failed(what) if what.contains("page"))));
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_makes_reads_unavailable_but_not_those_in_memory() {
    let patience = Duration::from_millis(300);
    let (gateway, root) = gateway_of(5000, Options { patience, ..Options::default() }).await;
    let warm = gateway.post("/v1/resolve", &resolve_request(&root, 1234)).await;
    assert_eq!(warm.status, 200);
    gateway.store.control().stored.failure = Some(Failure::Unavailable("the store is away".to_owned()));
    let got = gateway.post("/v1/resolve", &resolve_request(&root, 4321)).await;
    assert_eq!((got.outcome(), got.field("retry-after")), ((503, "unavailable".to_owned()), "1"));
    assert!(got.text().contains("the store is away"));
    gateway.store.control().permits = Some(0);
    let got = gateway.post("/v1/resolve", &resolve_request(&root, 4321)).await;
    assert_eq!(got.text(), "{\"error\":\"unavailable\",\"message\":\"this took longer than 0.3 seconds\"}");
    assert_eq!(gateway.post("/v1/resolve", &resolve_request(&root, 1234)).await, warm);
}

#[tokio::test]
async fn many_requests_for_the_same_pages_are_few_visits() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    gateway.store.control().permits = Some(0);
    let request = resolve_request(&root, 1234);
    let asked = futures_util::future::join_all((0..50).map(|_| gateway.post("/v1/resolve", &request)));
    let permit = async {
        // A request asks for the record and the top page, then for each page on the path.
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            gateway.store.permit(1);
        }
    };
    let (answers, ()) = tokio::join!(asked, permit);
    assert!(answers.iter().all(|got| got.status == 200 && *got == answers[0]));
    let visits = gateway.store.control().visits;
    assert!(visits <= 25, "{visits} visits for 50 requests");
}

#[tokio::test]
async fn long_queries_are_answered_beside_short_ones() {
    let (gateway, root) = gateway_of(50_000, Options { node_budget: 200, ..Options::default() }).await;
    let scan = format!("/v1/scan/{root}");
    let long = futures_util::future::join_all((0..12).map(|_| gateway.get(&scan)));
    let batch = json!({"root": root.to_string(),
                       "paths": (0..1000).map(|i| [format!("d{}", i % 10), format!("f{:05}", 40 * i)]).collect::<Vec<_>>()});
    let batch = batch.to_string();
    let short = async {
        for number in 0..100 {
            assert_eq!(gateway.post("/v1/resolve", &resolve_request(&root, number)).await.status, 200);
        }
    };
    let (long, (), batch) = tokio::join!(long, short, gateway.post("/v1/resolve/batch", &batch));
    assert!(long.iter().all(|got| got.status == 200 && *got == long[0]));
    assert_eq!(json_of(&long[0])["entries"].as_array().map(Vec::len), Some(1000));
    assert_eq!(json_of(&batch)["results"].as_array().map(Vec::len), Some(1000));
}

#[tokio::test]
async fn each_hot_request_is_counted_and_logged_once() {
    let options = Options { has_access_log: true, ..Options::default() };
    let (gateway, root) = gateway_of(50, options).await;
    let request = resolve_request(&root, 7);
    let fields = [("x-request-id", "given-id")];
    let got = gateway.send("POST", "/v1/resolve", &fields, request.as_bytes()).await;
    assert_eq!(got.field("x-request-id"), "given-id");
    gateway.send("GET", "/v1/%63as/x", &[("x-request-id", "not sane")], b"").await;
    let large = gateway.get(&format!("/v1/cas/{}", target(2))).await;
    gateway.send("HEAD", &format!("/v1/cas/{}", target(1)), &[], b"").await;
    gateway.get("/healthz").await;
    let mut lines = Vec::new();
    while lines.len() < 4 {
        lines.extend(gateway.log.take());
    }
    let shown: Vec<Value> = lines
        .iter()
        .map(|line| match &line.event {
            Event::Answered { status, bytes, .. } => json!([line.method, line.path, status, bytes]),
            Event::Failed(what) => json!(what),
        })
        .collect();
    let sizes = (got.body.len(), large.body.len());
    let mut expected = vec![
        json!(["POST", "/v1/resolve", 200, sizes.0]),
        json!(["GET", "/v1/cas/x", 400, shown[1][3]]),
        json!(["GET", format!("/v1/cas/{}", target(2)), 200, sizes.1]),
        json!(["HEAD", format!("/v1/cas/{}", target(1)), 200, 0]),
    ];
    let mut shown = shown;
    shown.sort_by_key(Value::to_string);
    expected.sort_by_key(Value::to_string);
    assert_eq!(shown, expected);
    assert_eq!(lines[0].id, "given-id");
    assert!(lines[1].id.len() == 16 && lines[1].id != lines[2].id);
    assert!(lines.iter().all(|line| line.client.is_some()));
    let counted: Vec<Value> = gateway
        .counts
        .snapshot()
        .iter()
        .map(|each| json!([each.method, each.route, each.statuses, each.nanoseconds.counts.iter().sum::<u64>()]))
        .collect();
    let expected = [
        json!(["POST", "/v1/resolve", [[200, 1]], 1]),
        json!(["GET", "/v1/cas/{cid}", [[200, 1], [400, 1]], 2]),
        json!(["HEAD", "/v1/cas/{cid}", [[200, 1]], 1]),
    ];
    assert_eq!(counted, expected);
    assert_eq!(gateway.counts.bodies().total, request.len() as u64);
    assert_eq!(gateway.log.dropped(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let (gateway, root) = gateway_of(5000, Options::default()).await;
    gateway.store.control().permits = Some(0);
    for number in 0..20 {
        let request = resolve_request(&root, number);
        let asked = gateway.post("/v1/resolve", &request);
        assert!(timeout(Duration::from_millis(5), asked).await.is_err());
    }
    gateway.store.permit(1000);
    let got = gateway.post("/v1/resolve", &resolve_request(&root, 1234)).await;
    assert_eq!(got.status, 200);
}
