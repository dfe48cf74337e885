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

#[test]
fn short_varints_are_those_of_any_length() {
    let around =
        |bits: u32| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1, 0x5555_5555_5555_5555 & ((1 << bits) - 1)];
    let values: Vec<u64> = (0..=56).flat_map(around).filter(|value| value >> 56 == 0).collect();
    for &value in &values {
        let mut out = Vec::new();
        write(&mut out, value);
        let sevens = Sevens::of(value);
        let (word, len) = sevens.varint();
        let bytes = word.to_le_bytes();
        assert_eq!((&bytes[..len], &bytes[len..]), (&out[..], &[0; SHORT_LEN][len..]), "{value}");
        assert_eq!(sevens.value(), value);
        for rest in [0x00, 0x01, 0x80, 0xff] {
            let mut padded = [rest; SHORT_LEN];
            padded[..len].copy_from_slice(&out);
            let word = u64::from_le_bytes(padded);
            assert_eq!(Sevens::len_in(word), (len, value != 0), "{value}, then {rest}");
            assert_eq!(Sevens::first(word, len), sevens, "{value}, then {rest}");
        }
        for &other in &values {
            assert_eq!(sevens.cmp(&Sevens::of(other)), value.cmp(&other), "{value}, {other}");
            if (value | other) >> 55 == 0 {
                assert_eq!(sevens.plus(Sevens::of(other)), Sevens::of(value + other), "{value} + {other}");
            }
        }
    }
    for malformed in [[0x80, 0, 1, 1, 1, 1, 1, 1], [0xff; 8], [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]] {
        let (len, is_valid) = Sevens::len_in(u64::from_le_bytes(malformed));
        assert!(!is_valid && len <= SHORT_LEN, "{malformed:?}");
    }
}
