//! What [`Framing`] lets pass, by whole inputs, by every way to cut them, and beside httparse.

use coregw_front::framing::{Limits, Malformed, Part};
use proptest::prelude::*;

#[path = "support/pieces.rs"]
mod pieces;

use pieces::{Passed, passed};

const LIMITS: Limits = Limits { head_bytes: 1024, fields: 8 };

fn run(pieces: &[&[u8]]) -> Passed {
    passed(LIMITS, pieces.iter().copied())
}

fn whole(text: &str) -> (u64, Part, Option<Malformed>) {
    let (_, requests, part, fault) = run(&[text.as_bytes()]);
    (requests, part, fault)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

#[test]
fn what_has_one_meaning_passes() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let accepted = [
        (GET.to_owned(), 1, Part::Idle),
        (GET.repeat(3), 3, Part::Idle),
        (format!("\r\n\r\n{GET}"), 1, Part::Idle),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 1, Part::Idle),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".to_owned(), 1, Part::Idle),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 1, Part::Idle),
        ("GET /?x=http:///y HTTP/1.1\r\nhOsT: a\r\n\r\n".to_owned(), 1, Part::Idle),
        (post("Content-Length: 3\r\n", "abc"), 1, Part::Idle),
        (post("Content-Length: 0000\r\n", GET), 2, Part::Idle),
        (post("content-length: 3\r\n", "ab"), 1, Part::Body),
        (post("Content-Length: 3\r\n", &format!("GET{GET}")), 2, Part::Idle),
        (post("Upgrade: websocket\r\nConnection: upgrade\r\n", GET), 2, Part::Idle),
        (post(chunked, &format!("3\r\nabc\r\n0\r\n\r\n{GET}")), 2, Part::Idle),
        (post(chunked, "a\r\n0123456789\r\n0A;x=\"y\"\r\n0123456789\r\n000\r\nT: x\r\n\r\n"), 1, Part::Idle),
        (post(chunked, "1;x;y=z;w=\"a \\\" b\"\r\na\r\n0\r\n\r\n"), 1, Part::Idle),
        (GET.replace("GET / ", "PROPFIND https://[::1]:80/x "), 1, Part::Idle),
        (post(chunked, "3\r\nabc"), 1, Part::Body),
        (post(chunked, "0\r\nT: x\r\n"), 1, Part::Body),
        (post("", "G"), 1, Part::Head),
        ("PRI * HTTP/2.0\r\n\r\nSM".to_owned(), 0, Part::Head),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\0".to_owned(), 0, Part::Http2),
    ];
    for (text, requests, part) in accepted {
        assert_eq!(whole(&text), (requests, part, None), "{text:?}");
    }
}

#[test]
fn what_has_two_meanings_does_not() {
    use Malformed::*;
    let head = |text: &str| (text.to_owned(), 0);
    let fields = |text: &str| (post(text, ""), 0);
    let chunks = |text: &str| (post("Transfer-Encoding: chunked\r\n", text), 1);
    let refused = [
        (head("GET / HTTP/1.1\nHost: a\r\n\r\n"), LineEnd),
        (head("GET / HTTP/1.1\r\nHost: a\n\n"), LineEnd),
        (head("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"), LineEnd),
        (head("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), LineEnd),
        (head("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"), Head),
        (head("GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n"), Head),
        (head("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"), Head),
        (head("GET /x y HTTP/1.1\r\nHost: a\r\n\r\n"), Head),
        (head("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), Head),
        (head("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Head),
        (head("GET /\r\n\r\n"), Head),
        (head("PRI * HTTP/2.0\r\n\r\nSM\r\n\rx"), Method),
        (head("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), Method),
        (head("get / HTTP/1.1\r\nHost: a\r\n\r\n"), Method),
        (head("\x16\x03\x01\x02"), Method),
        (head("hello"), Method),
        (head("GETS"), Method),
        (head("get /"), Method),
        (head("GET / HTTP/1.1\r\nHost: a\0"), Head),
        (head("GET a HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET ?x HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET /< HTTP/1.1\r\nHost: a\r\n\r\n"), Target),
        (head("GET http://[::1/x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (head("GET http://a:/x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (head("GET http://a:99999/x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (head("GET http://a%41/x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (head("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"), Connect),
        (head("GET / HTTP/1.1\r\n\r\n"), Hosts(0)),
        (fields("Host: a\r\n"), Hosts(2)),
        (head("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), Host),
        (head("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), Host),
        (head("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (head("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n"), Authority),
        (fields("Content-Length: 1, 1\r\n"), ContentLength),
        (fields("Content-Length: 1\r\nContent-Length: 1\r\n"), ContentLength),
        (fields("Content-Length: +1\r\n"), ContentLength),
        (fields("Content-Length: 0x1\r\n"), ContentLength),
        (fields("Content-Length:\r\n"), ContentLength),
        (fields("Content-Length: 18446744073709551615\r\n"), ContentLength),
        (fields("Content-Length: 18446744073709551616\r\n"), ContentLength),
        (fields("Content-Length: 000000000000000000001\r\n"), ContentLength),
        (fields("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), TransferEncoding),
        (fields("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), TransferEncoding),
        (fields("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: chunked, chunked\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: gzip, chunked\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: identity\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: xchunked\r\n"), TransferEncoding),
        (fields("Transfer-Encoding: \u{b}chunked\r\n"), Head),
        (head("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), TransferEncoding),
        (chunks("0x1\r\na\r\n"), Chunk),
        (chunks("+1\r\na\r\n"), Chunk),
        (chunks(" 1\r\na\r\n"), Chunk),
        (chunks("1 \r\na\r\n"), Chunk),
        (chunks("\r\n"), Chunk),
        (chunks("z"), Chunk),
        (chunks("1x"), Chunk),
        (chunks("1\na\r\n"), Chunk),
        (chunks("1;x\na\r\n"), Chunk),
        (chunks("1;\r\na\r\n"), Chunk),
        (chunks("1;x y\r\na\r\n"), Chunk),
        (chunks("1;x=\r\na\r\n"), Chunk),
        (chunks("1;x=\"y\r\na\r\n"), Chunk),
        (chunks("1;x=\"\\\r\na\r\n"), Chunk),
        (chunks("1;x\u{e9}\r\na\r\n"), Chunk),
        (chunks("1;x=\"\r\"\r\na\r\n"), Chunk),
        (chunks("1\r\na\n0\r\n"), Chunk),
        (chunks("1\r\nab\r\n"), Chunk),
        (chunks("10000000000000000\r\n"), Chunk),
        (chunks("00000000000000001\r\na\r\n"), Chunk),
        (chunks("0\r\n: x\r\n"), Head),
        (chunks("0\r\nT x\r\n"), Head),
        (chunks("0\r\nT: x\n"), LineEnd),
    ];
    for ((text, requests), fault) in refused {
        let (found_requests, _, found) = whole(&text);
        assert_eq!((found_requests, found), (requests, Some(fault)), "{text:?}");
    }
}

#[test]
fn what_is_no_body_has_limits() {
    let long = "x".repeat(LIMITS.head_bytes);
    for text in
        [&format!("GET /{long}"), &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), &format!("GET {long}")]
    {
        assert_eq!(whole(text).2, Some(Malformed::HeadTooLong(LIMITS.head_bytes)), "{text}");
    }
    assert_eq!(whole(&post(&"A: b\r\n".repeat(8), "")).2, Some(Malformed::TooManyFields(8)));
    assert_eq!(whole(&"\r\n".repeat(513)).2, Some(Malformed::Head));
    let trailers = |text: &str| whole(&post("Transfer-Encoding: chunked\r\n", &format!("0\r\n{text}"))).2;
    let too_long = Some(Malformed::TrailersTooLong(LIMITS.head_bytes));
    assert_eq!(trailers(&format!("T: {long}")), too_long);
    assert_eq!(trailers(&format!("T: {}\r\n", "x".repeat(200)).repeat(6)), too_long);
    assert_eq!(trailers(&"T: x\r\n".repeat(9)), Some(Malformed::TooManyTrailers(8)));
    let extension = post("Transfer-Encoding: chunked\r\n", &format!("1;{}", "x".repeat(2000)));
    assert_eq!(whole(&extension).2, Some(Malformed::Chunk));
    let extensions = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(17);
    assert_eq!(whole(&post("Transfer-Encoding: chunked\r\n", &extensions)).2, Some(Malformed::Chunk));
}

/// Texts that are nearly requests.
fn requests() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        GET,
        "POST / HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "T: x\r\n",
        "\r\n",
        "\r",
        "\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "1;x\r\n",
        "abc",
        "PRI * HTTP/2.0\r\n\r\n",
        "SM\r\n\r\n",
    ]);
    let start = prop::sample::select(vec![GET, "POST / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\n", ""]);
    (start, prop::collection::vec(part, 0..12)).prop_map(|(start, parts)| start.to_owned() + &parts.concat())
}

proptest! {
    #[test]
    fn the_pieces_in_which_bytes_arrive_change_nothing(text in requests(), cuts in prop::collection::vec(0usize..200, 0..8)) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]).collect();
        let expected = run(&[text.as_bytes()]);
        prop_assert_eq!(run(&pieces), expected.clone());
        let single: Vec<_> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(run(&single), expected);
    }

    #[test]
    fn what_passes_is_a_prefix(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (passed, ..) = run(&[&bytes]);
        prop_assert_eq!(&bytes[..passed.len()], &passed[..]);
    }
}
