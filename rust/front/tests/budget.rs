//! Bodies of requests, without connections, by a clock that the tests move.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use coregw_front::budget::{Account, Arriving, Budget, Capacity, SMALL_BYTES, read_whole};
use coregw_front::crowd::Member;
use coregw_front::pace::Rate;
use coregw_front::peers::{LOOPBACK, Proxies};
use coregw_front::problem::Problem;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const RATE: Rate = Rate { bytes_per_second: 1000, grace: Duration::from_secs(10), pause: Duration::from_secs(20) };
const WHOLE: Duration = Duration::from_secs(600);
const MIB: usize = 1 << 20;

/// A body whose chunks a test sends, with a declared length.
struct Sent(UnboundedReceiver<usize>, Option<u64>);

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|size| Ok(Frame::data(Bytes::from(vec![7; size])))))
    }

    fn size_hint(&self) -> SizeHint {
        self.1.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

type Reading = JoinHandle<(Result<usize, Problem>, Account, Duration)>;

/// Begins to read a body; returns what sends it, and what becomes of it.
fn read(
    budget: &Arc<Budget>,
    client: IpAddr,
    declared: Option<u64>,
    limit: usize,
) -> (UnboundedSender<usize>, Reading) {
    let (sender, receiver) = unbounded_channel();
    let mut account = budget.account(Some(client));
    let reading = tokio::spawn(async move {
        let began = Instant::now();
        let body = Arriving::new(Sent(receiver, declared), RATE, WHOLE, Arc::default());
        let found = read_whole(body, limit, &mut account).await.map(|body| body.len());
        (found, account, began.elapsed())
    });
    (sender, reading)
}

fn budget(total: usize, per_address: usize, largest: usize) -> Arc<Budget> {
    Budget::new(Capacity { total, per_address, largest }, Arc::new(Proxies::new(LOOPBACK).expect("networks")))
}

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

async fn code(reading: Reading) -> Result<usize, &'static str> {
    reading.await.expect("no panic").0.map_err(|problem| problem.code)
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_whole_and_counted_until_its_account_ends() {
    let budget = budget(8 * MIB, 8 * MIB, MIB);
    let (sender, reading) = read(&budget, ONE, None, MIB);
    for size in [10, 0, 100_000, 1] {
        sender.send(size).expect("it is read");
        sleep(Duration::from_secs(1)).await;
    }
    drop(sender);
    let (found, account, _) = reading.await.expect("no panic");
    assert_eq!((found, budget.held()), (Ok(100_011), 100_011));
    drop(account);
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_is_refused_as_soon_as_that_is_known() {
    let budget = budget(8 * MIB, 8 * MIB, MIB);
    let (_sender, reading) = read(&budget, ONE, Some(101), 100);
    assert_eq!(code(reading).await, Err("too_large"));
    let (sender, reading) = read(&budget, ONE, None, 100);
    sender.send(100).and_then(|()| sender.send(1)).expect("it is read");
    assert_eq!(code(reading).await, Err("too_large"));
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_may_have_all_of_the_budget_and_no_byte_more() {
    for (size, expected) in [(8 * MIB, Ok(8 * MIB)), (8 * MIB + 1, Err("unavailable"))] {
        let budget = budget(8 * MIB, MIB, 8 * MIB);
        let (sender, reading) = read(&budget, ONE, None, 16 * MIB);
        let (mut left, mut number) = (size, 0);
        while left > 0 {
            number += 1;
            let chunk = left.min(7919 * number);
            left -= chunk;
            sender.send(chunk).expect("it is read");
        }
        drop(sender);
        assert_eq!(code(reading).await, expected, "{size}");
        assert_eq!(budget.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_may_neither_stall_nor_trickle_nor_take_too_long() {
    let budget = budget(8 * MIB, 8 * MIB, MIB);
    // Bytes in each second, and when it ends: after the grace period; as 100 bytes earn a tenth of a second; after all.
    for (each_second, expected) in [(0, 10..=10), (100, 10..=12), (2000, 600..=601)] {
        let (sender, reading) = read(&budget, ONE, None, 8 * MIB);
        let sending = tokio::spawn(async move {
            while each_second > 0 && sender.send(each_second).is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
            sender.closed().await;
        });
        let (found, _, took) = reading.await.expect("no panic");
        let problem = found.expect_err("it is late");
        assert_eq!(problem.code, "invalid_request");
        assert!(problem.message.contains("in time") && expected.contains(&took.as_secs()), "{each_second}: {took:?}");
        sending.await.expect("no panic");
    }
    // Who was fast may pause, but not for as long as was saved.
    let (sender, reading) = read(&budget, ONE, None, 8 * MIB);
    sender.send(MIB).expect("it is read");
    assert_eq!(reading.await.expect("no panic").2.as_secs(), 20);
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn only_time_in_which_a_reader_waits_counts() {
    let (sender, receiver) = unbounded_channel();
    let shared = Arc::new(Member::default());
    let mut body = Arriving::new(Sent(receiver, None), RATE, WHOLE, shared);
    for _ in 0..100 {
        sleep(Duration::from_secs(60)).await;
        sender.send(1).expect("it is read");
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(frame.is_some_and(|frame| frame.is_ok()));
    }
}

#[tokio::test(start_paused = true)]
async fn one_address_has_a_share_and_small_bodies_have_room() {
    let budget = budget(8 * MIB, 2 * MIB, MIB);
    let mut accounts = Vec::new();
    for (client, size, expected) in [
        (ONE, 2 * MIB, Ok(2 * MIB)),
        (ONE, 100_000, Err("unavailable")),
        (ONE, SMALL_BYTES, Ok(SMALL_BYTES)),
        (OTHER, 2 * MIB, Ok(2 * MIB)),
        (IpAddr::V4(Ipv4Addr::LOCALHOST), 3 * MIB, Ok(3 * MIB)), // of a proxy: no share
        (IpAddr::V4(Ipv4Addr::LOCALHOST), MIB, Err("unavailable")), // the last eighth is for small ones
        (OTHER, SMALL_BYTES, Ok(SMALL_BYTES)),
    ] {
        let (sender, reading) = read(&budget, client, None, 8 * MIB);
        sender.send(size).expect("it is read");
        drop(sender);
        let (found, account, _) = reading.await.expect("no panic");
        assert_eq!(found.map_err(|problem| problem.code), expected, "{client} {size}");
        accounts.push(account);
    }
    drop(accounts);
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn stalled_bodies_that_hold_most_make_room_for_others() {
    let budget = budget(8 * MIB, 8 * MIB, MIB);
    let (large, large_reading) = read(&budget, ONE, None, 8 * MIB);
    let (small, small_reading) = read(&budget, ONE, None, 8 * MIB);
    large.send(4 * MIB).and_then(|()| small.send(2 * MIB)).expect("they are read");
    sleep(Duration::from_millis(500)).await;
    let (sender, reading) = read(&budget, OTHER, None, 8 * MIB);
    sender.send(3 * MIB).expect("it is read");
    assert_eq!(code(reading).await, Err("unavailable"), "nobody has stalled for long");
    sleep(Duration::from_secs(6000)).await; // far beyond what their bytes have earned: 20 s
    assert_eq!(code(large_reading).await, Err("invalid_request"));
    assert_eq!(code(small_reading).await, Err("invalid_request"));

    let (large, large_reading) = read(&budget, ONE, None, 8 * MIB);
    let (small, small_reading) = read(&budget, ONE, None, 8 * MIB);
    large.send(4 * MIB).and_then(|()| small.send(2 * MIB)).expect("they are read");
    sleep(Duration::from_secs(2)).await;
    let (sender, reading) = read(&budget, OTHER, None, 8 * MIB);
    sender.send(3 * MIB).expect("it is read");
    assert_eq!(code(large_reading).await, Err("unavailable"));
    drop((sender, small));
    assert_eq!((code(reading).await, code(small_reading).await), (Ok(3 * MIB), Ok(2 * MIB)));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_reads_any_more_holds_nothing() {
    let budget = budget(8 * MIB, 8 * MIB, MIB);
    let (sender, reading) = read(&budget, ONE, None, 8 * MIB);
    sender.send(MIB).expect("it is read");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(budget.held(), MIB);
    reading.abort();
    assert!(reading.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(budget.held(), 0);
    let mut account = budget.account(None);
    let whole = Arriving::new(Full::new(Bytes::from_static(b"abc")), RATE, WHOLE, Arc::default());
    assert_eq!(read_whole(whole, 3, &mut account).await, Ok(Bytes::from_static(b"abc")));
}

#[test]
fn clients_are_counted_under_their_address_or_subnet() {
    let key = |text: &str, client: &str| {
        let proxies = Proxies::new(text).expect("networks");
        proxies.key_of(client.parse().expect("an address")).map(|key| key.to_string())
    };
    for (proxies, client, expected) in [
        ("none", "127.0.0.1", Some("127.0.0.1")),
        (LOOPBACK, "127.3.2.1", None),
        (LOOPBACK, "::1", None),
        (LOOPBACK, "::ffff:127.0.0.1", None),
        (LOOPBACK, "::ffff:192.0.2.7", Some("192.0.2.7")),
        (LOOPBACK, "2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::")),
        ("10.0.0.5", "10.0.0.5", None),
        ("10.0.0.5", "10.0.0.6", Some("10.0.0.6")),
        (" 10.0.0.0/24 , fd00::/8", "10.0.0.255", None),
        (" 10.0.0.0/24 , fd00::/8", "10.0.1.0", Some("10.0.1.0")),
        (" 10.0.0.0/24 , fd00::/8", "fd12::1", None),
        ("0.0.0.0/0", "192.0.2.1", None),
    ] {
        assert_eq!(key(proxies, client).as_deref(), expected, "{proxies} {client}");
    }
    for bad in ["", "10.0.0.0/33", "10.0.0.1/24", "10.0.0.0/+8", "localhost", "10.0.0.0/24,"] {
        assert!(Proxies::new(bad).is_err(), "{bad}");
    }
}
