use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};

use super::super::format::block_head;
use super::*;

fn cid(data: &[u8]) -> Cid {
    payload::cid(data, Codec::RAW, Function::Sha2_256).expect("a hash takes any length")
}

fn car(blocks: &[(Cid, &[u8])]) -> Vec<u8> {
    let blocks = blocks.iter().flat_map(|(cid, data)| [block_head(cid, data.len() as u64), data.to_vec()].concat());
    payload_car_header().iter().copied().chain(blocks).collect()
}

/// The payloads of an answer that comes in chunks of this size: their indices and bytes.
fn read(requested: &[Cid], answer: &[u8], chunk: usize) -> Result<Vec<(usize, Vec<u8>)>> {
    let mut reader = PayloadReader::new(requested.to_vec(), 1 << 20);
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for bytes in answer.chunks(chunk) {
        reader.feed(bytes, |part| -> Result<()> {
            assert_eq!(part.start, parts.len() as u64);
            assert!(!part.bytes.is_empty() || part.size == 0);
            parts.extend_from_slice(part.bytes);
            assert_eq!(part.is_last, part.size == parts.len() as u64);
            if part.is_last {
                whole.push((part.index, std::mem::take(&mut parts)));
            }
            Ok(())
        })?;
    }
    reader.check_end()?;
    Ok(whole)
}

#[test]
fn payloads_are_read_from_chunks_of_any_size() {
    let datas: Vec<Vec<u8>> = [0, 1, 2, 200, 5000, 0, 92].map(|len| vec![len as u8; len]).to_vec();
    let mut requested: Vec<Cid> = datas.iter().map(|data| cid(data)).collect();
    requested[2] = payload::cid(&datas[2], Codec::RAW, Function::Identity).expect("short");
    let all: Vec<_> = requested.iter().copied().zip(datas.iter().map(Vec::as_slice)).collect();
    let without: Vec<_> = [1, 2, 4, 6].map(|index| all[index]).to_vec();
    for chunk in [1, 2, 3, 36, 37, 40, 100, 4999, 10_000] {
        let expected: Vec<_> = datas.iter().cloned().enumerate().collect();
        assert_eq!(read(&requested, &car(&all), chunk), Ok(expected.clone()), "{chunk}");
        let expected: Vec<_> = [1, 2, 4, 6].map(|index| expected[index].clone()).to_vec();
        assert_eq!(read(&requested, &car(&without), chunk), Ok(expected), "{chunk}");
        assert_eq!(read(&requested, &car(&[]), chunk), Ok(vec![]));
        assert_eq!(read(&requested, &car(&all[..1]), chunk), Ok(vec![(0, vec![])]), "an empty payload at the end");
    }
}

#[test]
fn every_other_answer_is_refused() {
    let (a, b) = (&b"first payload"[..], &b"second payload"[..]);
    let requested = [cid(a), cid(b)];
    let good = car(&[(cid(a), a), (cid(b), b)]);
    let refused = [
        car(&[(cid(b), b), (cid(a), a)]),
        car(&[(cid(a), a), (cid(a), a)]),
        car(&[(cid(a), b)]),
        car(&[(cid(a), &a[1..])]),
        car(&[(cid(a), &[])]),
        car(&[(cid(b"another"), b"another")]),
        [payload_car_header(), &[0]].concat(),
        [payload_car_header(), &[3, 1, 2, 3]].concat(),
        [payload_car_header(), &[0xff; 20]].concat(),
        [payload_car_header(), &[0x80]].concat(),
        [&good[..], &good[..]].concat(),
    ];
    for chunk in [1, 7, 1000] {
        for answer in &refused {
            assert!(matches!(read(&requested, answer, chunk), Err(Error::Proof { .. })), "{answer:?}");
        }
        for cut in 0..good.len() {
            let whole = [payload_car_header().len(), payload_car_header().len() + 1 + 36 + a.len()];
            assert_eq!(read(&requested, &good[..cut], chunk).is_ok(), whole.contains(&cut), "{cut}");
            let mut other = good.clone();
            other[cut] ^= 1;
            assert!(read(&requested, &other, chunk).is_err(), "{cut}");
        }
        let largest = vec![0; 1 << 20];
        let whole = read(&[cid(&largest)], &car(&[(cid(&largest), &largest)]), chunk.max(1000));
        assert_eq!(whole.map(|payloads| payloads[0].1.len()), Ok(1 << 20));
        let large = vec![0; (1 << 20) + 1];
        let refused = read(&[cid(&large)], &car(&[(cid(&large), &large)]), chunk.max(1000));
        assert!(matches!(refused, Err(Error::Input { code: InputCode::TooLarge, .. })));
    }
}
