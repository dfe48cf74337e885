use super::*;

/// A stub of this count, as written, with a digest of equal bytes.
fn stub(count: u64, byte: u8) -> Vec<u8> {
    let mut bytes = vec![0x03];
    varint::write(&mut bytes, count);
    bytes.extend_from_slice(&[byte; 32]);
    bytes
}

#[test]
fn a_stub_is_recognised_exactly_if_the_reader_accepts_it() {
    let counts = (0..63).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    let edited = [vec![0x03, 0x80, 0x00], vec![0x03, 0xff, 0x80, 0x00], vec![0x01, 0x01], vec![0x13, 0x01]];
    let edited = edited.into_iter().map(|bytes| [bytes, vec![0xff; 40]].concat());
    let stubs = counts.flat_map(|count| [stub(count, 0x00), stub(count, 0xff)]);
    for bytes in stubs.chain(edited) {
        for end in 0..=bytes.len() {
            let mut reader = PrunedReader { bytes: &bytes[..end], at: 0 };
            let (place, is_stub) = reader.peek_stub();
            let read = match reader.take(1) {
                Ok([0x03]) => reader.map_stub().ok(),
                _ => None,
            };
            assert_eq!(is_stub, read.is_some(), "{bytes:02x?}, {end} bytes");
            if let Some((count, digest)) = read {
                assert_eq!((place.digest, place.end()), (digest, reader.at));
                let shown = reader.stub_at(place);
                assert_eq!((shown.count, &shown.digest[..]), (count, &bytes[end - 32..end]));
            }
        }
    }
}
