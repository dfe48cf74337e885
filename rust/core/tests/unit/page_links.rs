use super::*;

#[test]
fn heads_of_pages_that_were_evicted_are_counted() {
    type Page = [u64; 20];
    let links = Links::of(3);
    for ordinal in 0..4 {
        let page: Arc<Page> = Arc::new([7; 20]);
        links.set(ordinal, &page);
        assert_eq!(links.get(ordinal).is_some(), ordinal < 3);
        drop(page);
        assert!(links.get(ordinal).is_none());
    }
    let heads = 3 * (2 * size_of::<usize>() + size_of::<Page>() + MUTEX_HEAP_BYTES);
    assert_eq!(links.memory(), heads + size_of_val(&*links.0));
    assert_eq!(Links::<Page>::default().memory(), 0);
}
