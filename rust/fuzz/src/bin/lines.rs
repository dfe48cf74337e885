//! Fuzz target: any bytes as lines of arcs, in chunks of any size. They are read exactly as a plain reading of each whole line
//! says, a malformed one is named by its number, and what was read is written and read again.
#![no_main]

use coregw_core::{Arcs, Cid, Error, key};
use coregw_fuzz::reference::identifier::escape;
use coregw_fuzz::strict_json::is_strict;
use coregw_ops::json::{ArcLines, LineFormat, MAX_LINE_BYTES, write_line};
use libfuzzer_sys::fuzz_target;

/// Keys with their targets, up to the first malformed line; and the number of that line.
type Lines = (Vec<(Vec<u8>, Vec<u8>)>, Option<usize>);

/// The arc of a line; None if it is malformed.
fn arc(format: LineFormat, line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (path, target) = match format {
        LineFormat::Json => {
            let pair = is_strict(line.as_bytes(), true).then(|| serde_json::from_str::<Vec<String>>(line).ok())??;
            <[String; 2]>::try_from(pair).ok()?.into()
        }
        LineFormat::Tabs => {
            let (path, target) = line.rsplit_once('\t')?;
            (path.to_owned(), target.to_owned())
        }
    };
    let target = Cid::from_text(&target).ok()?.as_bytes().to_vec();
    let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
    let is_path = path.len() <= 4096 && segments.iter().all(|segment| !segment.is_empty());
    is_path.then(|| ([&escape(&segments)[..], &[0, 0]].concat(), target))
}

fn plain(format: LineFormat, text: &[u8]) -> Lines {
    let mut found = Vec::new();
    let lines = text.split(|byte| *byte == b'\n').map(|line| (line.len(), line.strip_suffix(b"\r").unwrap_or(line)));
    for (i, (len, line)) in lines.enumerate() {
        if len <= MAX_LINE_BYTES && line.trim_ascii().is_empty() {
            continue;
        }
        let line = std::str::from_utf8(line).ok().filter(|_| len <= MAX_LINE_BYTES);
        let Some(arc) = line.and_then(|line| arc(format, line)) else { return (found, Some(i + 1)) };
        found.push(arc);
    }
    (found, None)
}

fn read(format: LineFormat, text: &[u8], chunk: usize) -> Lines {
    let (mut lines, mut arcs) = (ArcLines::new(format), Arcs::default());
    let mut outcome = text.chunks(chunk).try_for_each(|chunk| lines.feed(chunk, &mut arcs));
    outcome = outcome.and_then(|()| lines.finish(&mut arcs));
    let wrong = outcome.err().map(|error| {
        let Error::Input { what, .. } = error else { panic!("{error:?}") };
        assert!(what.starts_with(&format!("line {}: ", lines.lines())), "{what}");
        lines.lines() as usize
    });
    (arcs.iter().map(|(key, target)| (key.to_vec(), target.to_vec())).collect(), wrong)
}

/// Replaces the bytes 1 and 2 by many letters and spaces, so that short inputs make long lines.
fn longer(data: &[u8]) -> Vec<u8> {
    let run = |byte: &u8| match byte {
        1 => vec![b'x'; 4090],
        2 => vec![b' '; MAX_LINE_BYTES - 2],
        _ => vec![*byte],
    };
    data.iter().take(400).flat_map(run).take(4 * MAX_LINE_BYTES).collect()
}

fuzz_target!(|data: &[u8]| {
    let [how, chunk, rest @ ..] = data else { return };
    let format = if how & 1 == 0 { LineFormat::Json } else { LineFormat::Tabs };
    let text = if how & 2 == 0 { rest.to_vec() } else { longer(rest) };
    let expected = plain(format, &text);
    for chunk in [1 + usize::from(*chunk), text.len().max(1)] {
        assert_eq!(read(format, &text, chunk), expected, "in chunks of {chunk}");
    }
    let mut written = Vec::new();
    for (key, target) in &expected.0 {
        key::text_of(key).expect("the key of a path");
        write_line(key, target, &mut written).expect("an arc");
    }
    assert_eq!(read(LineFormat::Json, &written, 4096), (expected.0, None));
});
