use super::*;
use crate::json::array;

#[test]
fn a_path_consists_of_its_segments() {
    let segments = ["a", "\0", "b c", "\u{e9}", "d"];
    let path = Path::of(&segments).expect("a path");
    assert_eq!((path.segments(), path.text()), (segments.to_vec(), &*segments.join("/")));
    assert_eq!(serde_json::from_str::<Path>(&serde_json::to_string(&path).expect("JSON")).expect("a path"), path);
    for first in 0..=segments.len() {
        for len in 0..=segments.len() - first {
            let part = path.part(first, len).expect("enough segments");
            assert_eq!(part, Path::of(&segments[first..first + len]).expect("a path"));
        }
        assert_eq!(path.part(first, segments.len() - first + 1), None);
    }
}

#[test]
fn the_first_path_that_is_none_is_named() {
    let read = |text: &str| {
        let json = &mut serde_json::Deserializer::from_str(text);
        let all: SegmentsOfPaths =
            array(json, "keys", 4, InputCode::InvalidRequest).map_err(|error| error.to_string())?;
        all.paths("keys").map_err(|error| error.to_string())
    };
    let paths = read(r#"[["a"], ["b", "c\u0000"], []]"#).expect("paths");
    assert_eq!(paths.iter().collect::<Vec<_>>(), ["a", "b/c\0", ""]);
    let refused = paths.keys("keys").expect_err("no segments").to_string();
    assert_eq!(refused, "keys[2]: empty path; at least one segment is required");
    let longest = format!(r#"[["a"], ["{}"], ["b"]]"#, "x".repeat(MAX_TEXT));
    assert_eq!(read(&longest).expect("paths").keys("keys").expect("keys").len(), 3);
    for (text, why) in [
        (r#"[["a"], ["b", ""], ["/"]]"#, "keys[1]: segment 1: empty segment"),
        (r#"[["a"], ["b", "/", "c"], []]"#, "keys[1]: segment 1: a segment must not contain '/'"),
        (&longest.replace("xx\"", "xxx\""), "keys[1]: the path has more than 4,096 bytes of text"),
        (r#"[["a"], [""], ["b", 1]]"#, "keys[2]: invalid type: integer `1`"),
        (r#"[["a"], "b"]"#, "keys[1]: invalid type: string \"b\""),
        (r#"[["a"], ["b"], ["c"], ["d"], ["e"]]"#, "keys: more than 4 items"),
    ] {
        let refused = read(text).expect_err(why);
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn what_is_kept_does_not_grow_with_the_number_of_segments() {
    let read = |segment: &str, count: usize| -> Segments {
        serde_json::from_str(&serde_json::to_string(&vec![segment; count]).expect("JSON")).expect("strings")
    };
    assert_eq!(read("a", MAX_SEGMENTS).path("key").expect("the longest path").len(), MAX_SEGMENTS);
    for (segment, why) in [("a", "4,096"), ("", "segment 0"), ("a/b", "segment 0")] {
        let refused = read(segment, 100_000).path("key").expect_err("no path");
        assert!(matches!(&refused, Error::Input { code: InputCode::InvalidPath, what } if what.contains(why)));
    }
}

#[test]
fn a_path_has_up_to_4096_bytes_with_its_separators() {
    let longest = "x".repeat(MAX_TEXT);
    for (segments, fits) in [
        (vec![&longest[..]], true),
        (vec![&longest[2..], "y"], true),
        (vec![&longest[3..], "y", "z"], false),
        (vec![&longest[1..], "y"], false),
        (vec!["y", &longest[1..]], false),
        (vec!["y", "z", &longest[4..]], true),
    ] {
        assert_eq!(Path::of(&segments).map(|path| path.text().len()).ok(), fits.then_some(MAX_TEXT));
    }
    assert!(Path::of(&[&format!("{longest}x")]).is_err());
}

#[test]
fn every_segment_is_a_string() {
    for text in [r#"["", 1]"#, r#"[1]"#, r#"["a", null]"#, "{}", "\"a\""] {
        assert!(serde_json::from_str::<Segments>(text).is_err(), "{text}");
    }
}
