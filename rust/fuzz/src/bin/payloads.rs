//! Fuzz target: any bytes as the answer to a request for payloads, in chunks of any size, and answers of right and wrong
//! blocks. The reader passes on exactly the payloads that a plain reading of the whole answer finds, and refuses what that
//! refuses.
#![no_main]

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Result, varint};
use coregw_fuzz::input::Input;
use coregw_fuzz::reference::identifier::{is_cid, read_number};
use coregw_ops::car::{PayloadReader, block_head, payload_car_header};
use libfuzzer_sys::fuzz_target;

/// The payloads of an answer by their index, up to the first that is wrong; and whether all of it is right.
type Payloads = (Vec<(usize, Vec<u8>)>, bool);

/// Reads a whole answer as the protocol describes it.
fn plain(requested: &[Cid], max_bytes: u64, answer: &[u8]) -> Payloads {
    let (mut found, mut next) = (Vec::new(), 0);
    let Some(mut rest) = answer.strip_prefix(payload_car_header()) else { return (found, false) };
    while !rest.is_empty() {
        let Some((index, payload, after)) = block(&requested[next..], max_bytes, rest) else { return (found, false) };
        found.push((next + index, payload.to_vec()));
        (next, rest) = (next + index + 1, after);
    }
    (found, true)
}

fn block<'a>(requested: &[Cid], max_bytes: u64, bytes: &'a [u8]) -> Option<(usize, &'a [u8], &'a [u8])> {
    let (len, rest) = read_number(bytes).ok()?;
    let (block, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    let mut digest = block;
    let mut digest_len = 0;
    for _ in 0..4 {
        (digest_len, digest) = read_number(digest).ok()?;
    }
    let digest_len = usize::try_from(digest_len).ok().filter(|len| *len <= digest.len())?;
    let (cid, payload) = block.split_at(block.len() - digest.len() + digest_len);
    let index = is_cid(cid).then(|| requested.iter().position(|one| one.as_bytes() == cid))??;
    let is_match = payload.len() as u64 <= max_bytes && payload::matches(&requested[index], payload);
    is_match.then_some((index, payload, after))
}

fn read(requested: &[Cid], max_bytes: u64, answer: &[u8], chunk: usize) -> Payloads {
    let mut reader = PayloadReader::new(requested.to_vec(), max_bytes);
    let (mut found, mut parts) = (Vec::new(), Vec::new());
    let mut feed = |bytes: &[u8]| {
        reader.feed(bytes, |part| -> Result<()> {
            assert_eq!(part.start, parts.len() as u64);
            parts.extend_from_slice(part.bytes);
            assert!(part.size <= max_bytes && part.is_last == (part.size == parts.len() as u64));
            if part.is_last {
                found.push((part.index, std::mem::take(&mut parts)));
            }
            Ok(())
        })
    };
    let is_read = answer.chunks(chunk).try_for_each(&mut feed).is_ok();
    let is_whole = is_read && reader.check_end().is_ok();
    (found, is_whole)
}

fn payloads(input: &mut Input<'_>) -> Vec<(Cid, Vec<u8>)> {
    let payload = |input: &mut Input<'_>| {
        let data = vec![input.byte(); input.below(400)];
        let codec = [Codec::RAW, Codec::from_number(0x71).expect("a codec")][input.below(2)];
        let hash = Function::ALL[1 + input.below(Function::ALL.len() - 1)];
        let function = if data.len() < 128 && input.byte() < 80 { Function::Identity } else { hash };
        (payload::cid(&data, codec, function).expect("a payload"), data)
    };
    (0..input.below(6)).map(|_| payload(input)).collect()
}

/// An answer with the blocks in order, some left out, and sometimes one with a fault.
fn answer(input: &mut Input<'_>, payloads: &[(Cid, Vec<u8>)]) -> Vec<u8> {
    let mut out = payload_car_header().to_vec();
    for (cid, data) in payloads {
        match input.byte() {
            0..180 => out.extend([block_head(cid, data.len() as u64), data.clone()].concat()),
            180..200 => {}
            200..215 => {
                let other = &payloads[input.below(payloads.len())];
                out.extend([block_head(&other.0, data.len() as u64), data.clone()].concat());
            }
            215..230 => out.extend([block_head(cid, data.len() as u64 + 1), data.clone()].concat()),
            230..240 => {
                varint::write(&mut out, input.number());
                out.extend([cid.as_bytes(), data].concat());
            }
            240..=255 => out.extend((0..input.below(12)).map(|_| input.byte()).collect::<Vec<_>>()),
        }
    }
    match input.byte() {
        0..40 => out.truncate(input.below(out.len() + 1)),
        40..60 => {
            let at = input.below(out.len());
            out[at] ^= 1 << input.below(8);
        }
        _ => {}
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (chunk, how) = (1 + usize::from(input.byte()), input.byte());
    let payloads = payloads(&mut input);
    let requested: Vec<_> = payloads.iter().map(|payload| payload.0).collect();
    let max_bytes = [1 << 20, 300, 0][usize::from(how % 3)];
    let answer = match how & 0xc0 {
        0 => input.0.to_vec(),
        0x40 => [payload_car_header(), input.0].concat(),
        _ => answer(&mut input, &payloads),
    };
    let expected = plain(&requested, max_bytes, &answer);
    for chunk in [chunk, answer.len().max(1)] {
        assert_eq!(read(&requested, max_bytes, &answer, chunk), expected, "in chunks of {chunk}");
    }
});
