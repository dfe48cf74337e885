use super::*;

#[test]
fn the_cache_learns_of_uses_at_every_level() {
    const QUERIES: u64 = 4000;
    for pages in 1..=40 {
        for level in 0..pages {
            let noted = (0..QUERIES).filter(|query| is_noted(query * pages + level)).count() as u64;
            let share = QUERIES / TOUCHES_PER_LOOKUP;
            assert!((share / 2..=2 * share).contains(&noted), "{noted} at level {level} of {pages}");
        }
    }
}
