//! Forged parts of folders: answers of payloads, and records of attributes. Each violates one check.

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, Result};
use coregw_folders::{Attributes, Entry};
use coregw_ops::car::{PayloadReader, block_head, payload_car_header};

const DATA: [&[u8]; 3] = [b"the first", b"", b"the third payload"];

fn cid(data: &[u8]) -> Cid {
    payload::cid(data, Codec::RAW, Function::Sha2_256).expect("a payload")
}

fn block(cid: Cid, data: &[u8]) -> Vec<u8> {
    [block_head(&cid, data.len() as u64), data.to_vec()].concat()
}

fn honest() -> [Vec<u8>; 3] {
    DATA.map(|data| block(cid(data), data))
}

/// Reads an answer to a request for the payloads; the outcome, and how many were passed on whole.
fn read(blocks: &[&[u8]], chunk: usize) -> (Result<()>, usize) {
    let answer = [&[payload_car_header()], blocks].concat().concat();
    let mut reader = PayloadReader::new(DATA.map(cid).to_vec(), 1 << 20);
    let mut whole = 0;
    let outcome = answer.chunks(chunk).try_for_each(|bytes| {
        reader.feed(bytes, |part| -> Result<()> {
            whole += usize::from(part.is_last);
            Ok(())
        })
    });
    (outcome.and_then(|()| reader.check_end()), whole)
}

/// An answer is refused after `whole` of its payloads.
#[track_caller]
fn assert_refused(blocks: &[&[u8]], whole: usize) {
    for chunk in [1, 7, 1000] {
        let (outcome, passed) = read(blocks, chunk);
        assert!(matches!(outcome, Err(Error::Proof { .. })) && passed == whole, "{outcome:?} after {passed}");
    }
}

#[test]
fn answer_with_another_payload_is_refused() {
    let [first, empty, third] = honest();
    assert_eq!(read(&[&first, &empty, &third], 7), (Ok(()), 3));
    assert_eq!(read(&[&first, &third], 7), (Ok(()), 2)); // the client asks elsewhere for what is left out
    assert_refused(&[&first, &block(cid(DATA[2]), b"the other payload")], 1);
    assert_refused(&[&block(cid(DATA[0]), b"")], 0);
    assert_refused(&[&block(cid(DATA[1]), b"not empty")], 0);
    assert_refused(&[&first, &block(cid(b"not asked for"), b"not asked for")], 1);
    let of_another_codec = payload::cid(DATA[0], Codec::parse("dag-cbor").expect("a codec"), Function::Sha2_256);
    assert_refused(&[&block(of_another_codec.expect("a payload"), DATA[0])], 0);
}

#[test]
fn answer_with_payloads_in_another_order_is_refused() {
    let [first, empty, third] = honest();
    assert_refused(&[&empty, &first], 1);
    assert_refused(&[&first, &first], 1);
    assert_refused(&[&first, &third, &empty], 2);
    assert_refused(&[&first, &empty, &third, &third], 3);
}

#[test]
fn truncated_answer_of_payloads_is_refused() {
    let [first, _, third] = honest();
    for cut in 1..first.len() {
        assert_refused(&[&first[..cut]], 0);
    }
    for cut in 1..third.len() {
        assert_refused(&[&first, &third[..cut]], 1);
    }
    for wrong in [&[0][..], &[0xff; 9], &[3, 1, 2, 3], &[36, 1, 0x55, 0x12, 33]] {
        assert_refused(&[&first, wrong], 1);
    }
}

#[test]
fn record_of_attributes_in_another_form_is_refused() {
    let known = Attributes {
        entry: Entry::File,
        size: Some(5),
        mode: Some(0o644),
        mtime: Some(1_700_000_000_250_000_000),
        owner: Some((1000, 100)),
        xattrs: [("user.a".to_owned(), vec![7; 200]), ("user.b".to_owned(), Vec::new())].into(),
    };
    let record = known.record().expect("a record");
    assert_eq!(Attributes::of_record(&record.target, Some(&record.bytes)), Ok(known.clone()));
    for at in 0..record.bytes.len() {
        for bit in 0..8 {
            let mut other = record.bytes.clone();
            other[at] ^= 1 << bit;
            // It is the record of other attributes, or of none; and never that of this target.
            if let Ok(attributes) = Attributes::decode(&other) {
                assert!(attributes != known && attributes.record().expect("a record").bytes == other);
            }
            assert!(Attributes::of_record(&record.target, Some(&other)).is_err());
        }
        assert!(Attributes::decode(&record.bytes[..at]).is_err());
    }
    assert!(Attributes::decode(&[&record.bytes[..], &[0]].concat()).is_err());
    assert!(Attributes::of_record(&cid(&record.bytes), None).is_err());
}
