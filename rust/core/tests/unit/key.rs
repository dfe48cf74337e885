use super::*;

#[test]
fn text_and_segments_encode_to_the_same_key() {
    let key = Key::from_text("docs/a\0b/\u{e9}").expect("a path");
    assert_eq!(key, Key::from_segments(&["docs", "a\0b", "\u{e9}"]).expect("a path"));
    assert_eq!(segments(key.as_bytes()), ["docs", "a\0b", "\u{e9}"]);
    assert_eq!(check(key.as_bytes()), Ok(()));
    assert_eq!(text_of(key.as_bytes()).as_deref(), Ok("docs/a\0b/\u{e9}"));
    assert!(text_of(b"docs").is_err());
}

#[test]
fn a_path_takes_room_for_its_segments_and_not_for_its_zeros() {
    for path in [vec!["\0".repeat(1000)], vec!["\0a".repeat(300), "b\0\0".into()], vec!["a".into(), "b".into()]] {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let decoded = segments(Key::from_segments(&path).expect("a path").as_bytes());
        assert_eq!(decoded, path);
        assert_eq!(decoded.capacity(), path.len());
        assert!(decoded.iter().all(|segment| segment.capacity() <= 2 * segment.len()));
    }
}

#[test]
fn only_segments_with_a_zero_are_copied() {
    let key = Key::from_segments(&["docs", "a\0b", "\0", "\u{e9}"]).expect("a path");
    let decoded: Vec<_> = key.segments().collect();
    assert_eq!(decoded, ["docs", "a\0b", "\0", "\u{e9}"]);
    let is_copied = |segment: &Cow<'_, str>| matches!(segment, Cow::Owned(_));
    assert_eq!(decoded.iter().map(is_copied).collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn segments_are_measured_without_being_decoded() {
    for path in [&["a"][..], &["\0"], &["docs", "a\0b", "\0\0", "\u{1}\u{e9}"], &["\u{1}", "\0\u{1}"]] {
        let key = Key::from_segments(path).expect("a path");
        assert_eq!(key.segment_bytes(), path.iter().map(|segment| segment.len()).sum::<usize>());
    }
}

#[test]
fn keys_of_parts_are_those_of_their_segments() {
    let path = ["a", "\0", "\u{1}", "\0\u{1}", "b\0", "\u{ff}"];
    let keys = PathKeys::new(&path).expect("a path");
    for first in 0..path.len() {
        for len in 1..=path.len() - first {
            let key = Key::from_segments(&path[first..first + len]).expect("a path");
            assert_eq!(keys.key(first, len), key);
            let longest = keys.key(first, path.len() - first);
            if longest != key {
                let bit = crate::bits::first_difference(key.as_bytes(), longest.as_bytes());
                assert_eq!(Some(keys.differing_bit(first, len)), bit);
            }
        }
    }
}

#[test]
fn invalid_paths_are_rejected() {
    for text in ["", "/", "a/", "/a", "a//b"] {
        assert!(Key::from_text(text).is_err(), "{text:?}");
    }
    assert!(Key::from_text(&"x".repeat(MAX_TEXT)).is_ok());
    assert!(Key::from_text(&"x".repeat(MAX_TEXT + 1)).is_err());
    assert!(Key::from_segments(&["a/b"]).is_err());
    assert!(Key::from_segments(&["a", ""]).is_err());
    assert!(Key::from_segments::<&str>(&[]).is_err());
    let longest = Key::from_text(&"\0".repeat(MAX_TEXT)).expect("a path");
    assert_eq!(longest.as_bytes().len(), MAX_KEY);
    assert_eq!(check(longest.as_bytes()), Ok(()));
    let parts = |second: usize| ["x".repeat(MAX_TEXT / 2), "x".repeat(second)];
    let fits = Key::from_segments(&parts(MAX_TEXT / 2 - 1)).expect("a path");
    assert_eq!(check(fits.as_bytes()), Ok(()));
    assert!(Key::from_segments(&parts(MAX_TEXT / 2)).is_err());
    let long = [&b"x".repeat(MAX_TEXT + 1)[..], &[0, 0]].concat();
    assert_eq!(check(&long), Err("a key is longer than 4,096 bytes of text"));
}

#[test]
fn after_must_be_in_the_window() {
    assert!(Window::new(&["a"], Some(&["a"])).is_ok());
    assert!(Window::new(&["a"], Some(&["a", "b"])).is_ok());
    assert!(Window::new(&["a"], Some(&["b"])).is_err());
    assert!(Window::new(&["a"], Some(&["A"])).is_err());
    assert!(Window::new(&["a"], Some(&["ab"])).is_err());
}
