use super::*;

#[test]
fn values_round_trip_and_len_is_the_encoded_length() {
    for v in [0, 1, 127, 128, 300, 16_383, 16_384, (1 << 53) - 1, 1 << 62, (1 << 63) - 1] {
        let mut out = Vec::new();
        write(&mut out, v);
        assert_eq!(out.len(), len(v));
        assert_eq!(read(&out), Ok((v, out.len())));
    }
}

#[test]
fn overlong_truncated_and_non_minimal_forms_are_refused() {
    let ends = Err("the bytes end inside a varint");
    assert_eq!([read(&[]), read(&[0x80]), read(&[0xff; 8])], [ends; 3]);
    assert_eq!(read(&[0x80, 0x00]), Err("a varint is not in minimal form"));
    assert_eq!([read(&[0xff; 9]), read(&[0xff; 10])], [Err("a varint is longer than 9 bytes"); 2]);
    assert!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_err());
    assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Ok(((1 << 63) - 1, 9)));
}
