//! Fuzz target: any bytes as a page. A page that parses is written back to the same bytes, and no stub names its own
//! page.
#![no_main]

use coregw_core::{Digest, Kind, Page, Suite};
use libfuzzer_sys::fuzz_target;

/// Extracts the actual digest from a mismatch error.
fn digest_of(refused: &str) -> Option<Digest> {
    let (_, hex) = refused.rsplit_once("has the digest ")?;
    let byte = |i: usize| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Option<Vec<_>> = (0..32).map(byte).collect();
    Some(Digest(bytes?.try_into().ok()?))
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let suite = Suite::ALL[usize::from(how & 1)];
    let kind = if how & 2 == 0 { Kind::Map } else { Kind::List };
    let refused = Page::parse(bytes, kind, suite, &Digest([0; 32])).expect_err("no page has this digest");
    if let Some(digest) = digest_of(&refused.to_string()) {
        let page = Page::parse(bytes, kind, suite, &digest).expect("the page parses under its own digest");
        assert_eq!(page.to_bytes(), bytes);
        assert!(page.stubs().all(|stub| stub != digest));
    }
});
