//! Connections with framing and deadlines, without sockets, by a clock that the tests move.

use std::io::ErrorKind;
use std::time::Duration;

use coregw_front::framing::{Limits, Malformed};
use coregw_front::guard::{Deadlines, Guarded, REFUSED};
use coregw_front::pace::Rate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep, timeout};

const LIMITS: Limits = Limits { head_bytes: 16 << 10, fields: 100 };
const RATE: Rate = Rate { bytes_per_second: 1000, grace: Duration::from_secs(10), pause: Duration::from_secs(20) };
const DEADLINES: Deadlines = Deadlines {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    body: RATE,
    body_whole: Duration::from_secs(600),
    read: RATE,
    drain: Duration::from_secs(5),
};
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A client, and the guarded other end of its connection.
fn connect() -> (DuplexStream, Guarded<DuplexStream>) {
    let (client, server) = duplex(64 << 10);
    (client, Guarded::new(server, LIMITS, DEADLINES))
}

async fn send(client: &mut DuplexStream, bytes: &[u8]) {
    client.write_all(bytes).await.expect("the connection is open");
}

/// Reads exactly these bytes.
async fn expect(guarded: &mut Guarded<DuplexStream>, bytes: &[u8]) {
    let mut found = vec![0; bytes.len()];
    guarded.read_exact(&mut found).await.expect("as many bytes");
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(bytes));
}

/// Reads until nothing follows; returns how long that took, in seconds, and whether it ended by an error.
async fn seconds_to_the_end(guarded: &mut Guarded<DuplexStream>) -> (f64, Option<ErrorKind>) {
    let began = Instant::now();
    let ended = guarded.read_to_end(&mut Vec::new()).await;
    (began.elapsed().as_secs_f64().round(), ended.err().map(|error| error.kind()))
}

#[tokio::test(start_paused = true)]
async fn requests_pass_unchanged_however_they_arrive() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(12_000));
    let sent = [GET, long.as_bytes(), CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", GET].concat();
    for piece in [1, 7, 100, 5000, sent.len()] {
        let (mut client, mut guarded) = connect();
        let mut read = Vec::new();
        for bytes in sent.chunks(piece) {
            send(&mut client, bytes).await;
            let mut space = [0; 900];
            while let Ok(size) = timeout(Duration::ZERO, guarded.read(&mut space)).await {
                let size = size.expect("no fault");
                assert_ne!(size, 0, "nothing is overdue");
                read.extend_from_slice(&space[..size]);
            }
        }
        assert_eq!(read, sent, "{piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_head_is_answered_in_its_turn() {
    let (mut client, mut guarded) = connect();
    send(&mut client, &[GET, b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", GET].concat()).await;
    expect(&mut guarded, GET).await;
    let shared = guarded.shared();
    expect(&mut guarded, REFUSED).await;
    assert_eq!(seconds_to_the_end(&mut guarded).await, (0.0, None));
    assert_eq!((shared.fault(1), shared.fault(2)), (None, Some(Malformed::LineEnd)));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_body_ends_its_own_request() {
    let (mut client, mut guarded) = connect();
    send(&mut client, &[GET, CHUNKED, b"3\r\nabc\r\n0x1\r\n", GET].concat()).await;
    expect(&mut guarded, &[GET, CHUNKED, b"3\r\nabc\r\n"].concat()).await;
    assert_eq!(seconds_to_the_end(&mut guarded).await, (0.0, None));
    let shared = guarded.shared();
    assert_eq!((shared.fault(1), shared.fault(2)), (None, Some(Malformed::Chunk)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_left() {
    let (_client, mut guarded) = connect();
    assert_eq!(seconds_to_the_end(&mut guarded).await, (10.0, None));
}

#[tokio::test(start_paused = true)]
async fn a_head_has_one_deadline_however_it_drips() {
    for start in ["GET / HT", "PRI * HTTP/2.0\r\n"] {
        let (mut client, mut guarded) = connect();
        let dripping = tokio::spawn(async move {
            for byte in start.bytes() {
                sleep(Duration::from_secs(3)).await;
                if client.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        let (seconds, error) = seconds_to_the_end(&mut guarded).await;
        assert!(error.is_none() && (10.0..=20.0).contains(&seconds), "{start}: {seconds}");
        dripping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_left_but_one_that_waits_is_not() {
    let (mut client, mut guarded) = connect();
    send(&mut client, GET).await;
    expect(&mut guarded, GET).await;
    let open = guarded.shared().begin();
    let mut space = [0; 10];
    let still = timeout(Duration::from_secs(1000), guarded.read(&mut space)).await;
    assert!(still.is_err(), "its request is being answered");
    drop(open);
    assert_eq!(seconds_to_the_end(&mut guarded).await, (30.0, None));
}

#[tokio::test(start_paused = true)]
async fn empty_lines_do_not_keep_a_connection() {
    let (mut client, mut guarded) = connect();
    send(&mut client, GET).await;
    expect(&mut guarded, GET).await;
    let dripping = tokio::spawn(async move {
        while client.write_all(b"\r\n").await.is_ok() {
            sleep(Duration::from_secs(8)).await;
        }
    });
    let (seconds, error) = seconds_to_the_end(&mut guarded).await;
    assert!(error.is_none() && seconds <= 40.0, "{seconds}");
    dripping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_the_gateway_keeps_waiting_is_not_late() {
    let (mut client, mut guarded) = connect();
    send(&mut client, POST).await;
    expect(&mut guarded, POST).await;
    for _ in 0..20 {
        sleep(Duration::from_secs(100)).await;
        send(&mut client, &[0; 10]).await;
        expect(&mut guarded, &[0; 10]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_left() {
    let (_client, mut guarded) = connect();
    let began = Instant::now();
    let error = guarded.write_all(&[0; 1 << 20]).await.expect_err("nobody reads");
    assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::TimedOut, 20));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_the_client_still_sends() {
    let (mut client, mut guarded) = connect();
    send(&mut client, POST).await;
    expect(&mut guarded, POST).await;
    let sending = tokio::spawn(async move {
        let sent = client.write_all(&[0; 1_000_000]).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("the answer");
        (sent.is_ok(), answer)
    });
    guarded.write_all(b"early").await.expect("room");
    guarded.shutdown().await.expect("the end");
    drop(guarded);
    assert_eq!(sending.await.expect("no panic"), (true, b"early".to_vec()));

    let (mut client, mut guarded) = connect();
    send(&mut client, POST).await;
    let began = Instant::now();
    guarded.shutdown().await.expect("the end");
    assert_eq!(began.elapsed().as_secs(), 5);
}
