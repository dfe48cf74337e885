use super::*;

#[test]
fn heads_are_read_in_their_shortest_form_only() {
    for number in [0, 23, 24, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        let mut head = Vec::new();
        write_head(&mut head, ARRAY, number);
        head.push(7);
        assert_eq!(split_head(&head), Some((ARRAY, number, &[7][..])));
        for cut in 0..head.len() - 1 {
            assert_eq!(split_head(&head[..cut]), None);
        }
    }
    let long = [&[0x98, 23][..], &[0x99, 0, 255], &[0x9a, 0, 0, 255, 255], &[0x9b, 0, 0, 0, 0, 255, 255, 255, 255]];
    for head in long.into_iter().chain([&[0x9f][..], &[0x9c], &[0x9d], &[0x9e], &[]]) {
        assert_eq!(split_head(head), None, "{head:?}");
    }
}
