//! Fuzz target: resolves, reads, listings and diffs of stored trees, with caches and budgets of all sizes. Each has the
//! answer of a plain model, and its result verifies to that answer.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use coregw_core::{Cid, Error, Kind, Missing, RootCid, Snapshot, Suite, Window};
use coregw_fuzz::input::Input;
use coregw_fuzz::model::Answer;
use coregw_fuzz::model::{Arcmap, Elements, Path, list, map, slow_diff, slow_range, slow_scan};
use coregw_fuzz::{forge, store::Store};
use coregw_ops::{
    DiffRequest, MapProofForm, MapProofOutcome, Operation, ReadOutcome, verify_map_proof, verify_read, verify_resolve,
    verify_scan,
};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

enum Content {
    Map(Arcmap),
    List(Elements),
}

/// Held trees as plain values, and the same in a store.
struct World {
    held: HashMap<RootCid, Content>,
    roots: Vec<RootCid>,
    store: Store,
}

impl World {
    fn add(&mut self, tree: &Snapshot, content: Content) {
        self.store.pages.extend(tree.pages().map(|page| (page.digest(), page.to_bytes())));
        self.store.roots.insert(tree.root());
        self.roots.push(tree.root());
        self.held.insert(tree.root(), content);
    }

    /// What is at a path: the longest arcs first, through held roots.
    fn resolve(&self, cid: &Cid, path: &[String]) -> Option<Cid> {
        if path.is_empty() {
            return Some(*cid);
        }
        let content = cid.root().and_then(|root| self.held.get(&root))?;
        (1..=path.len()).rev().find_map(|len| {
            let target = match content {
                Content::Map(arcs) => arcs.get(&path[..len]).copied(),
                Content::List(elements) if len == 1 => element(elements, &path[0]),
                Content::List(_) => None,
            };
            self.resolve(&target?, &path[len..])
        })
    }
}

fn element(elements: &Elements, segment: &str) -> Option<Cid> {
    let index = segment.parse::<usize>().ok().filter(|index| index.to_string() == segment)?;
    elements.get(index).map(|element| element.0)
}

/// A few trees; later ones hold roots of earlier ones.
fn world(input: &mut Input<'_>, suite: Suite) -> World {
    let (cache, budget) = ([1 << 22, 1 << 12, 0][input.below(3)], [u64::MAX, 50, 3, 1][input.below(4)]);
    let mut world = World { held: HashMap::new(), roots: Vec::new(), store: Store::new(cache, budget) };
    for _ in 0..1 + input.below(4) {
        let nested = |input: &mut Input<'_>, roots: &[RootCid]| {
            (input.flag() && !roots.is_empty()).then(|| roots[input.below(roots.len())].cid())
        };
        if input.byte() < 80 {
            let mut elements = input.elements();
            if let Some(cid) = nested(input, &world.roots) {
                elements.push((cid, 1));
            }
            world.add(&list(suite, &elements), Content::List(elements));
        } else {
            let mut arcs = input.arcs();
            for _ in 0..3 {
                if let Some(cid) = nested(input, &world.roots) {
                    arcs.insert(input.path(), cid);
                }
            }
            world.add(&map(suite, &arcs), Content::Map(arcs));
        }
    }
    world
}

/// A path through nested trees, or near one.
fn path(input: &mut Input<'_>, world: &World, from: &RootCid) -> Path {
    let (mut path, mut at) = (Path::new(), from.cid());
    while let Some(content) = at.root().and_then(|root| world.held.get(&root)) {
        let part = match content {
            Content::Map(arcs) => input.near(&arcs.keys().collect::<Vec<_>>()),
            Content::List(elements) => vec![input.below(elements.len() + 2).to_string()],
        };
        let next = world.resolve(&at, &part);
        path.extend(part);
        match next {
            Some(next) if input.byte() < 200 => at = next,
            _ => break,
        }
    }
    path
}

fn check_resolve(world: &mut World, root: &RootCid, path: &Path) {
    let expected = world.resolve(&root.cid(), path);
    let segments: Vec<_> = path.iter().map(String::as_str).collect();
    match world.store.resolve(root, &segments) {
        Ok((request, result)) => {
            assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()).ok(), expected, "{path:?}");
        }
        Err(Error::NotFound { missing: Missing::Path, .. }) => assert_eq!(expected, None, "{path:?}"),
        Err(error) => panic!("{error}: {path:?}"),
    }
}

fn check_map(input: &mut Input<'_>, world: &mut World, root: &RootCid, arcs: &Arcmap) {
    let known: Vec<_> = arcs.keys().collect();
    let (path, cid, cache) = (input.near(&known), root.cid().text(), Arc::clone(&world.store.cache));
    let expected = arcs.get(&path).copied();
    let request = json!({"profile": "core.map-proof/v0alpha1", "root": cid, "key": path}).to_string();
    let result = world
        .store
        .serve(Operation::map_proof(Arc::clone(&cache), request.as_bytes(), MapProofForm::Result).expect("a request"));
    let proven = verify_map_proof(request.as_bytes(), result.expect("an answer").as_bytes());
    assert_eq!(proven, Ok(MapProofOutcome::Key(expected)));

    let mut keys: Vec<_> = (0..1 + input.below(6)).map(|_| input.near(&known)).collect();
    keys.sort();
    keys.dedup();
    keys.reverse();
    let targets = keys.iter().map(|path| arcs.get(path).copied()).collect();
    let request = json!({"profile": "core.map-proof/v0alpha1", "root": cid, "keys": keys}).to_string();
    let result = world
        .store
        .serve(Operation::map_proof(Arc::clone(&cache), request.as_bytes(), MapProofForm::Result).expect("a request"));
    let proven = verify_map_proof(request.as_bytes(), result.expect("an answer").as_bytes());
    assert_eq!(proven, Ok(MapProofOutcome::Keys(targets)));

    let request = json!({"profile": "core.read/v0alpha1", "root": cid, "query": {"kind": "map_key", "segments": path}})
        .to_string();
    assert_eq!(read(world, &request), ReadOutcome::Key(expected));

    let (prefix, after, limit) = forge::window(input, &known);
    let mut request = json!({"profile": "core.scan/v0alpha1", "root": cid, "prefix": prefix, "limit": limit});
    if let Some(after) = &after {
        request["after"] = json!(after);
    }
    let request = request.to_string();
    let result = world.store.serve(Operation::scan(cache, request.as_bytes()).expect("a request")).expect("a listing");
    let (listing, _) = verify_scan(request.as_bytes(), result.as_bytes()).expect("a proven listing");
    assert_eq!(listing, slow_scan(arcs, &prefix, after.as_ref(), limit));
}

fn read(world: &mut World, request: &str) -> ReadOutcome {
    let operation = Operation::read(Arc::clone(&world.store.cache), request.as_bytes()).expect("a request");
    let result = match world.store.serve(operation) {
        Err(Error::NotFound { details: Some(details), .. }) => details,
        other => other.expect("an answer"),
    };
    verify_read(request.as_bytes(), result.as_bytes()).expect("a proven answer")
}

fn check_list(input: &mut Input<'_>, world: &mut World, root: &RootCid, elements: &Elements) {
    let (cid, index) = (root.cid().text(), input.below(elements.len() + 3) as u64);
    let query = |query| json!({"profile": "core.read/v0alpha1", "root": cid, "query": query}).to_string();
    let ReadOutcome::Element(found) = read(world, &query(json!({"kind": "list_index", "index": index}))) else {
        panic!("not an element")
    };
    let expected = elements.get(index as usize);
    assert_eq!((found.target, found.size), (expected.map(|e| e.0), expected.map(|e| e.1)));
    let total: u64 = elements.iter().map(|element| element.1).sum();
    let (start, end) = (input.number() % (total + 3), input.flag().then(|| input.number() % (total + 3)));
    let mut range = json!({"kind": "list_range", "start": start});
    if let Some(end) = end {
        range["end"] = json!(end);
    }
    let ReadOutcome::Range { span, .. } = read(world, &query(range)) else { panic!("not a range") };
    assert_eq!(Answer::Span(span), slow_range(elements, start, end));
}

fn check_diff(input: &mut Input<'_>, world: &mut World, roots: [&RootCid; 2], maps: [&Arcmap; 2]) {
    let known: Vec<_> = maps[0].keys().chain(maps[1].keys()).collect();
    let (prefix, after, limit) = forge::window(input, &known);
    let window = Window::new(&prefix, after.as_deref()).expect("a window");
    let [a, b] = roots.map(RootCid::cid);
    let request = DiffRequest::new(&a, &b, window, limit as u64).expect("a request");
    let operation = Operation::diff(Arc::clone(&world.store.cache), request.clone());
    let result = world.store.serve(operation).expect("an answer");
    assert_eq!(request.verify(result.as_bytes()), Ok(slow_diff(maps, &prefix, after.as_ref(), limit)));
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let suite = Suite::ALL[input.below(2)];
    let mut world = world(&mut input, suite);
    for _ in 0..1 + input.below(4) {
        let root = world.roots[input.below(world.roots.len())];
        let path = path(&mut input, &world, &root);
        if path.join("/").len() <= 4096 {
            check_resolve(&mut world, &root, &path);
        }
        let content = world.held.remove(&root).expect("a held root");
        match &content {
            Content::Map(arcs) => {
                check_map(&mut input, &mut world, &root, arcs);
                let other = world.roots[input.below(world.roots.len())];
                if other.kind == Kind::Map && other != root {
                    let beside = world.held.remove(&other).expect("a held root");
                    if let Content::Map(arcs_beside) = &beside {
                        check_diff(&mut input, &mut world, [&root, &other], [arcs, arcs_beside]);
                    }
                    world.held.insert(other, beside);
                }
            }
            Content::List(elements) => check_list(&mut input, &mut world, &root, elements),
        }
        world.held.insert(root, content);
    }
});
