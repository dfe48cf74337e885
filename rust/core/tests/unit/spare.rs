use super::*;

#[test]
fn a_thread_keeps_two_buffers_of_medium_length() {
    let of = |len: usize| vec![1u8; len];
    for len in [0, MIN_BYTES - 1, MAX_BYTES + 1] {
        give(of(len));
        assert_eq!(SPARE.with_borrow(Vec::len), 0, "{len}");
    }
    (0..3).for_each(|i| give(of(MIN_BYTES + i)));
    assert_eq!(SPARE.with_borrow(Vec::len), MAX_BUFFERS);
    let long = take(MIN_BYTES + 2);
    assert!(long.is_empty() && long.capacity() == MIN_BYTES + 2, "the oldest was freed");
    assert_eq!(take(MIN_BYTES + 2).capacity(), MIN_BYTES + 2, "a new one, since the other is too short");
    assert_eq!(SPARE.with_borrow(Vec::len), 1);
    assert!(std::thread::spawn(|| SPARE.with_borrow(Vec::is_empty)).join().expect("a thread"));
}
