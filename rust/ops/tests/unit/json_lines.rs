use proptest::prelude::*;

use super::*;

const CID: &str = "bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi";

fn read(format: LineFormat, text: &[u8], chunk: usize) -> Result<Vec<(String, String)>> {
    let (mut lines, mut arcs) = (ArcLines::new(format), Arcs::default());
    text.chunks(chunk).try_for_each(|chunk| lines.feed(chunk, &mut arcs))?;
    lines.finish(&mut arcs)?;
    let arc = |(key, target): (&[u8], &[u8])| (key::text_of(key).expect("a key"), Cid::trusted(target).text());
    Ok(arcs.iter().map(arc).collect())
}

fn paths(format: LineFormat, text: &str) -> Vec<String> {
    read(format, text.as_bytes(), 1 << 20).expect("arcs").into_iter().map(|(path, _)| path).collect()
}

#[test]
fn lines_of_both_formats_give_arcs_wherever_chunks_end() {
    let json = format!("[\"b/c\",\"{CID}\"]\r\n\n [ \"a\\u0000\\\"\" , \"{CID}\" ]\n[\"x\",\"{CID}\"]");
    let tabs = format!("b/c\t{CID}\r\n  \na\0\"\t{CID}\nx\ty\t{CID}");
    assert_eq!(paths(LineFormat::Json, &json), ["b/c", "a\0\"", "x"]);
    assert_eq!(paths(LineFormat::Tabs, &tabs), ["b/c", "a\0\"", "x\ty"]);
    for chunk in 1..json.len() {
        assert_eq!(read(LineFormat::Json, json.as_bytes(), chunk), read(LineFormat::Json, json.as_bytes(), json.len()));
    }
    assert_eq!(paths(LineFormat::Json, ""), [""; 0]);
}

#[test]
fn a_malformed_line_is_named_by_its_number() {
    let long = format!("[\"{}\",\"{CID}\"]", "x".repeat(MAX_LINE_BYTES));
    let cases = [
        (LineFormat::Json, "[\"a\"]".to_owned(), InputCode::InvalidRequest, "expected [path, CID]"),
        (LineFormat::Json, format!("[\"a\",\"{CID}\",1]"), InputCode::InvalidRequest, "expected [path, CID]"),
        (LineFormat::Json, format!("{{\"a\":\"{CID}\"}}"), InputCode::InvalidRequest, "expected [path, CID]"),
        (LineFormat::Json, format!("[\"a\",\"{CID}\"] []"), InputCode::InvalidRequest, "expected [path, CID]"),
        (LineFormat::Json, "[\"a\u{1}\",\"b\"]".to_owned(), InputCode::InvalidRequest, "control character"),
        (LineFormat::Json, "[\"\u{1}\",\"\u{1}\"]".to_owned(), InputCode::InvalidRequest, "control character"),
        (LineFormat::Json, "[\"\"\",\"\"\"]".to_owned(), InputCode::InvalidRequest, "expected [path, CID]"),
        (LineFormat::Json, r#"["\\","\\"]"#.to_owned(), InputCode::InvalidCid, r#"arc "\\": CID"#),
        (LineFormat::Json, "[\"a\",\"x\"]".to_owned(), InputCode::InvalidCid, "arc \"a\": CID \"x\""),
        (LineFormat::Json, format!("[\"a//b\",\"{CID}\"]"), InputCode::InvalidPath, "path \"a//b\": empty segment"),
        (LineFormat::Json, long, InputCode::InvalidRequest, "longer than 32,768 bytes"),
        (LineFormat::Tabs, format!("a {CID}"), InputCode::InvalidRequest, "no tab"),
        (LineFormat::Tabs, format!("\t{CID}"), InputCode::InvalidPath, "empty segment"),
        (LineFormat::Tabs, format!("a\t{CID} "), InputCode::InvalidCid, "arc \"a\""),
    ];
    for (format, line, expected, text) in cases {
        let good = if format == LineFormat::Json { format!("[\"ok\",\"{CID}\"]") } else { format!("ok\t{CID}") };
        for chunk in [1 << 20, 7] {
            let Err(Error::Input { code, what }) = read(format, format!("{good}\n{line}\n{good}\n").as_bytes(), chunk)
            else {
                panic!("{line:.80} was accepted");
            };
            assert!(code == expected && what.starts_with("line 2: ") && what.contains(text), "{what}");
        }
    }
    let Err(Error::Input { what, .. }) = read(LineFormat::Json, b"\xff", 1) else { panic!("not UTF-8") };
    assert_eq!(what, "line 1: not UTF-8");
}

#[test]
fn escapes_are_read_where_nothing_else_is_unusual() {
    for (text, path) in [(r#"a\"b"#, "a\"b"), (r"a\\b", "a\\b"), (r"\u0061", "a"), (r"a\/b", "a/b")] {
        assert_eq!(paths(LineFormat::Json, &format!("[\"{text}\",\"{CID}\"]")), [path]);
    }
    let cid = format!("\\u0062{}", &CID[1..]);
    assert_eq!(paths(LineFormat::Json, &format!("[\"a\",\"{cid}\"]")), ["a"]);
}

#[test]
fn lines_are_read_up_to_the_longest_and_no_more_is_kept() {
    let line = |len: usize| format!("{:len$}\n", format!("[\"a\",\"{CID}\"]"));
    for chunk in [1000, MAX_LINE_BYTES, 1 << 20] {
        let longest = read(LineFormat::Json, line(MAX_LINE_BYTES).repeat(2).as_bytes(), chunk);
        assert_eq!(longest.map(|arcs| arcs.len()), Ok(2));
        assert!(read(LineFormat::Json, line(MAX_LINE_BYTES + 1).as_bytes(), chunk).is_err());
    }
    let (mut lines, mut arcs) = (ArcLines::new(LineFormat::Json), Arcs::default());
    assert_eq!(lines.feed(line(100).repeat(3).as_bytes(), &mut arcs), Ok(()));
    assert_eq!((lines.lines(), arcs.len()), (3, 3));
    // The rest of a line that is too long is not waited for.
    for (first, second) in [(0, 100_000), (1, 100_000), (MAX_LINE_BYTES, 2), (100, MAX_LINE_BYTES - 98)] {
        let (mut lines, mut arcs) = (ArcLines::new(LineFormat::Json), Arcs::default());
        assert_eq!(lines.feed(&vec![b' '; first], &mut arcs), Ok(()));
        assert!(lines.feed(&vec![b' '; second], &mut arcs).is_err());
        assert_eq!(lines.lines(), 1);
    }
}

proptest! {
    #[test]
    fn written_lines_are_read_again(paths in prop::collection::vec("[^/\u{0}]{1,9}(/.[^/]{0,9})?", 0..20), chunk in 1usize..99) {
        let (mut arcs, mut text) = (Arcs::default(), Vec::new());
        let paths: Vec<_> = paths.into_iter().filter(|path| arcs.push_text(path, CID).is_ok()).collect();
        arcs.iter().try_for_each(|(key, target)| write_line(key, target, &mut text)).expect("lines");
        let found = read(LineFormat::Json, &text, chunk).expect("arcs");
        prop_assert_eq!(found.into_iter().map(|(path, _)| path).collect::<Vec<_>>(), paths);
    }
}
