//! Fuzz target: forged pruned trees and queries on them, under the roots that they hash to. The verifier accepts exactly
//! what the reference accepts, with the same answers.
#![no_main]

use coregw_core::{Kind, RootCid, Suite};
use coregw_fuzz::agree::{agree_on_diff, agree_on_own_root};
use coregw_fuzz::input::Input;
use coregw_fuzz::{forge, reference};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let suite = Suite::ALL[usize::from(how & 1)];
    if how & 2 == 0 {
        let proof = forge::list(&mut input);
        for _ in 0..3 {
            agree_on_own_root(Kind::List, suite, &forge::list_query(&mut input), &proof);
        }
        return;
    }
    let n = 1 + input.below(6);
    let paths: Vec<_> = (0..n).map(|_| input.path()).collect();
    let proof = forge::map(&mut input, &paths);
    if how & 4 == 0 {
        for _ in 0..3 {
            agree_on_own_root(Kind::Map, suite, &forge::map_query(&mut input, &paths), &proof);
        }
        return;
    }
    let other = forge::map(&mut input, &paths);
    let own = [&proof, &other].map(|proof| reference::own_digest(Kind::Map, suite, proof));
    let [Some(a), Some(b)] = own else { return };
    let [a, b] = [a, b].map(|digest| RootCid { kind: Kind::Map, suite, digest });
    let known: Vec<_> = paths.iter().collect();
    for _ in 0..3 {
        let (prefix, after, limit) = forge::window(&mut input, &known);
        agree_on_diff([&a, &b], (&prefix, after.as_ref()), limit, [&proof, &other]);
    }
});
