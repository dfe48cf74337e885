//! Connections with framing and deadlines, without sockets, by a clock that the tests move.

use std::io::{ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use coregw_front::crowd::{Member, Open};
use coregw_front::framing::{Limits, Malformed};
use coregw_front::guard::{Deadlines, Guarded, PROBE, REFUSED, Stream};
use coregw_front::pace::Rate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
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

/// A pipe whose client may be gone, as a socket would say.
struct Pipe(DuplexStream, Arc<AtomicBool>);

impl Stream for Pipe {
    fn is_reset(&self) -> bool {
        self.1.load(Ordering::Acquire)
    }

    fn reset_when_closed(&self) {
        self.1.store(true, Ordering::Release);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The guarded end of a connection, and what its requests share with it.
struct Guard {
    guarded: Guarded<Pipe>,
    member: Arc<Member>,
    is_reset: Arc<AtomicBool>,
}

/// A client, and the guarded other end of its connection.
fn connect() -> (DuplexStream, Guard) {
    let (client, server) = duplex(64 << 10);
    let (member, is_reset) = (Arc::new(Member::default()), Arc::new(AtomicBool::new(false)));
    let guarded = Guarded::new(Pipe(server, Arc::clone(&is_reset)), Arc::clone(&member), LIMITS, DEADLINES);
    (client, Guard { guarded, member, is_reset })
}

/// Begins a request, as hyper does.
fn begin(guard: &Guard) -> Open {
    guard.member.next_request();
    guard.member.begin()
}

async fn send(client: &mut DuplexStream, bytes: &[u8]) {
    client.write_all(bytes).await.expect("the connection is open");
}

/// Reads exactly these bytes.
async fn expect(guard: &mut Guard, bytes: &[u8]) {
    let mut found = vec![0; bytes.len()];
    guard.guarded.read_exact(&mut found).await.expect("as many bytes");
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(bytes));
}

/// Reads until nothing follows; returns how long that took, in seconds, and whether it ended by an error.
async fn seconds_to_the_end(guard: &mut Guard) -> (f64, Option<ErrorKind>) {
    let began = Instant::now();
    let ended = guard.guarded.read_to_end(&mut Vec::new()).await;
    (began.elapsed().as_secs_f64().round(), ended.err().map(|error| error.kind()))
}

#[tokio::test(start_paused = true)]
async fn requests_pass_unchanged_however_they_arrive() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(12_000));
    let sent = [GET, long.as_bytes(), CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", GET].concat();
    for piece in [1, 7, 100, 5000, sent.len()] {
        let (mut client, mut guard) = connect();
        let (mut read, mut answered) = (Vec::new(), 0);
        for bytes in sent.chunks(piece) {
            send(&mut client, bytes).await;
            let mut space = [0; 900];
            loop {
                if let Ok(size) = timeout(Duration::ZERO, guard.guarded.read(&mut space)).await {
                    let size = size.expect("no fault");
                    assert_ne!(size, 0, "nothing is overdue");
                    read.extend_from_slice(&space[..size]);
                    continue;
                }
                let text = String::from_utf8_lossy(&read);
                let begun = text.matches("Host: a").count();
                if begun == answered {
                    break;
                }
                assert_eq!(begun, answered + 1, "each waits until the one before it is answered");
                drop(begin(&guard));
                answered += 1;
            }
        }
        assert_eq!(read, sent, "{piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_head_is_answered_in_its_turn() {
    let (mut client, mut guard) = connect();
    send(&mut client, &[GET, b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", GET].concat()).await;
    expect(&mut guard, GET).await;
    drop(begin(&guard));
    expect(&mut guard, REFUSED).await;
    drop(begin(&guard));
    assert_eq!(seconds_to_the_end(&mut guard).await, (0.0, None));
    assert_eq!((guard.member.fault(1), guard.member.fault(2)), (None, Some(Malformed::LineEnd)));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_body_ends_its_own_request() {
    let (mut client, mut guard) = connect();
    send(&mut client, &[GET, CHUNKED, b"3\r\nabc\r\n0x1\r\n", GET].concat()).await;
    expect(&mut guard, GET).await;
    drop(begin(&guard));
    expect(&mut guard, &[CHUNKED, b"3\r\nabc\r\n"].concat()).await;
    assert_eq!(seconds_to_the_end(&mut guard).await, (0.0, None));
    assert_eq!((guard.member.fault(1), guard.member.fault(2)), (None, Some(Malformed::Chunk)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_left() {
    let (_client, mut guard) = connect();
    assert_eq!(seconds_to_the_end(&mut guard).await, (10.0, None));
}

#[tokio::test(start_paused = true)]
async fn a_head_has_one_deadline_however_it_drips() {
    for start in ["GET / HT", "PRI * HTTP/2.0\r\n"] {
        let (mut client, mut guard) = connect();
        let dripping = tokio::spawn(async move {
            for byte in start.bytes() {
                sleep(Duration::from_secs(3)).await;
                if client.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        let (seconds, error) = seconds_to_the_end(&mut guard).await;
        assert!(error.is_none() && (10.0..=20.0).contains(&seconds), "{start}: {seconds}");
        dripping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_left_but_one_that_waits_is_not() {
    let (mut client, mut guard) = connect();
    send(&mut client, GET).await;
    expect(&mut guard, GET).await;
    let open = begin(&guard);
    let mut space = [0; 10];
    let still = timeout(Duration::from_secs(1000), guard.guarded.read(&mut space)).await;
    assert!(still.is_err(), "its request is being answered");
    drop(open);
    assert_eq!(seconds_to_the_end(&mut guard).await, (30.0, None));
}

#[tokio::test(start_paused = true)]
async fn empty_lines_do_not_keep_a_connection() {
    let (mut client, mut guard) = connect();
    send(&mut client, GET).await;
    expect(&mut guard, GET).await;
    drop(begin(&guard));
    let dripping = tokio::spawn(async move {
        while client.write_all(b"\r\n").await.is_ok() {
            sleep(Duration::from_secs(8)).await;
        }
    });
    let (seconds, error) = seconds_to_the_end(&mut guard).await;
    assert!(error.is_none() && seconds <= 40.0, "{seconds}");
    dripping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_the_gateway_keeps_waiting_is_not_late() {
    let (mut client, mut guard) = connect();
    send(&mut client, POST).await;
    expect(&mut guard, POST).await;
    for _ in 0..20 {
        sleep(Duration::from_secs(100)).await;
        send(&mut client, &[0; 10]).await;
        expect(&mut guard, &[0; 10]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_left() {
    let (_client, mut guard) = connect();
    let began = Instant::now();
    let error = guard.guarded.write_all(&[0; 1 << 20]).await.expect_err("nobody reads");
    // What was written before has earned the longest pause.
    assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::TimedOut, 20));
    drop(guard.guarded);
    assert!(guard.member.is_ended() && guard.is_reset.load(Ordering::Acquire));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_too_slowly_is_left_however_its_answer_is_flushed() {
    // Bytes that are read in each second, and whether that is enough.
    for (each_second, is_enough) in [(1, false), (500, false), (1500, true)] {
        let (mut client, mut guard) = connect();
        let open = begin(&guard);
        let reading = tokio::spawn(async move {
            let mut space = vec![0; each_second];
            while client.read(&mut space).await.is_ok_and(|size| size > 0) {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let began = Instant::now();
        let mut written = Ok(());
        while written.is_ok() && began.elapsed().as_secs() < 1000 {
            written = guard.guarded.write_all(&[0; 100]).await;
            written = written.and(guard.guarded.flush().await);
        }
        assert_eq!(written.is_ok(), is_enough, "{each_second}: {:?}", began.elapsed());
        assert!(is_enough || began.elapsed().as_secs() < 200, "{each_second}: {:?}", began.elapsed());
        drop(open);
        reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_gone_is_noticed_and_one_that_ends_its_side_is_answered() {
    for is_gone in [false, true] {
        let (mut client, mut guard) = connect();
        send(&mut client, GET).await;
        expect(&mut guard, GET).await;
        let open = begin(&guard);
        client.shutdown().await.expect("it is open");
        let is_reset = Arc::clone(&guard.is_reset);
        let mut space = [0; 10];
        let waiting = timeout(Duration::from_secs(100), guard.guarded.read(&mut space)).await;
        assert!(waiting.is_err(), "the request goes on");
        let mut received = [0; PROBE.len()];
        client.read_exact(&mut received).await.expect("it is open");
        assert_eq!(received, *PROBE);
        if is_gone {
            is_reset.store(true, Ordering::Release);
            let (seconds, error) = seconds_to_the_end(&mut guard).await;
            assert!(seconds <= 1.0 && error == Some(ErrorKind::ConnectionReset), "{seconds} {error:?}");
        } else {
            drop(open);
            assert_eq!(seconds_to_the_end(&mut guard).await, (0.0, None));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_when_the_answer_was_sent() {
    for (head, rest) in [(GET, &b""[..]), (GET, b"GET /")] {
        let (mut client, mut guard) = connect();
        send(&mut client, &[head, rest].concat()).await;
        expect(&mut guard, head).await;
        drop(begin(&guard)); // its last bytes are written after the answer counts as complete
        client.shutdown().await.expect("it is open");
        let written = guard.guarded.write(&[7; 100_000]).await.expect("room");
        let writing = timeout(Duration::from_secs(1), guard.guarded.write_all(&[7; 1000])).await;
        assert!(writing.is_err(), "{written} bytes fill the pipe");
        let early = timeout(Duration::from_secs(1), guard.guarded.read(&mut [0; 10])).await;
        assert!(early.is_err(), "the client is still reading");
        let reading = tokio::spawn(async move { client.read_exact(&mut vec![0; 64 << 10]).await.map(|_| client) });
        guard.guarded.flush().await.expect("it is read");
        assert_eq!(seconds_to_the_end(&mut guard).await, (0.0, None));
        reading.await.expect("no panic").expect("the answer");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_into_an_answer_or_to_clients_of_http_1_0() {
    for (head, is_answering) in [(GET, true), (&b"GET / HTTP/1.0\r\n\r\n"[..], false)] {
        let (mut client, mut guard) = connect();
        send(&mut client, head).await;
        expect(&mut guard, head).await;
        let mut open = begin(&guard);
        if is_answering {
            open.answer();
        }
        client.shutdown().await.expect("it is open");
        let mut space = [0; 10];
        assert!(timeout(Duration::from_secs(100), guard.guarded.read(&mut space)).await.is_err());
        assert!(timeout(Duration::from_secs(1), client.read(&mut space)).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_read_ahead_within_bounds() {
    let (mut client, mut guard) = connect();
    let sending = tokio::spawn(async move {
        let _ = client.write_all(&GET.repeat(10_000)).await; // until the guard ends
        client
    });
    let mut space = [0; 64];
    for _ in 0..100 {
        expect(&mut guard, GET).await;
        let open = begin(&guard);
        assert!(timeout(Duration::from_secs(1), guard.guarded.read(&mut space)).await.is_err());
        drop(open);
    }
    assert!(!sending.is_finished());
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[tokio::test]
async fn http2_that_never_pauses_leaves_other_connections_their_turn() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let (mut client, mut guard) = connect();
    send(&mut client, PREFACE).await;
    expect(&mut guard, PREFACE).await;
    send(&mut client, &[0; 60 << 10]).await;
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let (mut bytes, mut turns) = ([0; 8 << 10], vec![0]);
    while turns.iter().sum::<usize>() < 60 << 10 {
        let mut buf = ReadBuf::new(&mut bytes);
        match Pin::new(&mut guard.guarded).poll_read(&mut Context::from_waker(&waker), &mut buf) {
            Poll::Ready(read) => {
                read.expect("it is open");
                *turns.last_mut().expect("a turn") += buf.filled().len();
            }
            Poll::Pending => {
                assert_eq!(woken.0.swap(0, Ordering::AcqRel), 1, "its next turn comes");
                turns.push(0);
            }
        }
    }
    assert!(turns.len() >= 3 && turns.iter().all(|read| *read <= 24 << 10), "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_over_http2_without_a_request_keeps_no_connection() {
    for has_begun in [false, true] {
        let (mut client, mut guard) = connect();
        send(&mut client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        expect(&mut guard, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        if has_begun {
            let open = begin(&guard);
            let mut space = [0; 10];
            assert!(timeout(Duration::from_secs(1000), guard.guarded.read(&mut space)).await.is_err());
            drop(open);
        }
        let dripping = tokio::spawn(async move {
            while client.write_all(&[0]).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let expected = if has_begun { 30.0 } else { 10.0 };
        assert_eq!(seconds_to_the_end(&mut guard).await, (expected, None));
        dripping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_the_client_still_sends() {
    let (mut client, mut guard) = connect();
    send(&mut client, POST).await;
    expect(&mut guard, POST).await;
    let sending = tokio::spawn(async move {
        let sent = client.write_all(&[0; 1_000_000]).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("the answer");
        (sent.is_ok(), answer)
    });
    guard.guarded.write_all(b"early").await.expect("room");
    guard.guarded.shutdown().await.expect("the end");
    drop(guard);
    assert_eq!(sending.await.expect("no panic"), (true, b"early".to_vec()));

    // What is no part of the body is discarded too, but not without end.
    for (body, most) in
        [(&b"3\r\nabc\r\n"[..], 100 << 20), (b"0\r\n\r\n", 2 << 20), (b"0\r\nT: x\r\n", 2 << 20), (b"0\n", 2 << 20)]
    {
        let (mut client, mut guard) = connect();
        send(&mut client, CHUNKED).await;
        expect(&mut guard, CHUNKED).await;
        let sending = tokio::spawn(async move {
            let (piece, mut sent) = (body.repeat(1000), 0);
            while sent < 3 << 20 && client.write_all(&piece).await.is_ok() {
                sent += piece.len();
            }
            sent
        });
        timeout(Duration::from_secs(1), guard.guarded.shutdown()).await.expect("the end").expect("the end");
        drop(guard);
        let sent = sending.await.expect("no panic");
        assert!(sent < most && (sent > 1 << 20 || most < 100 << 20), "{sent} {body:?}");
    }

    let (mut client, mut guard) = connect();
    send(&mut client, POST).await;
    let began = Instant::now();
    guard.guarded.shutdown().await.expect("the end");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_and_does_not_close_is_not_waited_for() {
    for (idle, most) in [(0, 1.0), (10, 0.0)] {
        let (mut client, mut guard) = connect();
        send(&mut client, GET).await;
        expect(&mut guard, GET).await;
        let open = begin(&guard);
        guard.guarded.write_all(b"answer").await.expect("room");
        drop(open);
        sleep(Duration::from_secs(idle)).await;
        let began = Instant::now();
        guard.guarded.shutdown().await.expect("the end");
        assert!((began.elapsed().as_secs_f64() - most).abs() < 0.01, "{idle} {:?}", began.elapsed());
        drop(client);
    }
}
