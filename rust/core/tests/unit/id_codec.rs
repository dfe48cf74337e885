use super::*;

#[test]
fn table_is_complete_sorted_and_without_root_codecs() {
    assert_eq!(TABLE.len(), include_str!("../../src/id/codecs.txt").lines().count());
    assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
    for (name, code) in TABLE.iter() {
        assert_eq!(Codec::parse(name).map(Codec::number), Ok(*code), "{name}");
        assert!(!name.starts_with(|c: char| c.is_ascii_digit()), "{name} could be a number");
    }
}

#[test]
fn name_and_decimal_and_hexadecimal_forms_parse_to_the_same_codec() {
    let forms =
        [("raw", "85", "0x55"), ("dag-pb", "112", "0x70"), ("dag-cbor", "113", "0x71"), ("json", "512", "0x0200")];
    for (name, decimal, hexadecimal) in forms {
        assert_eq!(Codec::parse(name), Codec::parse(decimal));
        assert_eq!(Codec::parse(name), Codec::parse(hexadecimal));
    }
    assert_eq!(Codec::parse("0").map(Codec::number), Ok(0));
    assert_eq!(Codec::parse("9223372036854775807").map(Codec::number), Ok(LIMIT - 1));
    assert_eq!(Codec::parse("3145727").map(Codec::number), Ok(0x2f_ffff));
}

#[test]
fn unknown_names_malformed_numbers_and_root_codecs_are_refused() {
    for text in ["", " raw", "RAW", "no-such", "0x", "0X55", "0xg", "+85", "-1", "0x+5", "085", "1e3", "85 ", "\u{665}"]
    {
        assert!(Codec::parse(text).is_err(), "{text:?}");
    }
    for text in ["9223372036854775808", "0xffffffffffffffff", "0x1ffffffffffffffff", "3145728", "0x303110", "0x30ffff"]
    {
        assert!(Codec::parse(text).is_err(), "{text:?}");
    }
    assert!(Codec::parse("0x310000").is_ok());
}
