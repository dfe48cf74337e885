use super::*;

#[test]
fn a_page_takes_the_memory_of_its_nodes_and_links() {
    let stub = |byte| [&[3, 1][..], &[byte; 32], &[0, 0, 0]].concat();
    let bytes = [&[2, 3, 0x60][..], &stub(1), &stub(2)].concat();
    let mut arena = Arena::default();
    pruned::decode(&mut arena, &bytes, Kind::Map, Suite::Sha2_256, Form::Page, VisitLimits::NONE)
        .expect("a pruned tree");
    let digest = Page::new(Kind::Map, Suite::Sha2_256, arena, Vec::new()).digest();
    let page = Page::parse(&bytes, Kind::Map, Suite::Sha2_256, &digest).expect("a page");
    let [nodes, links] = [page.arena.memory(), page.links.memory()];
    assert!(nodes >= 3 * 32 && links == Links::<Page>::of(2).memory(), "{nodes}, {links}");
    assert_eq!(page.memory(), size_of::<Page>() + nodes + links);
}
