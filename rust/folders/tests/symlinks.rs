//! Links that lead out of a tree, or may do so one day, are told from others.
#![cfg(unix)]

use std::collections::BTreeMap;

use coregw_folders::symlinks::{Named, Names, leads_outside};

/// Folders and links by their paths; a folder has the number of its place.
struct Tree {
    folders: Vec<&'static str>,
    links: BTreeMap<&'static str, &'static str>,
}

impl Names for Tree {
    fn find(&mut self, folder: u32, name: &[u8]) -> Named {
        let name = String::from_utf8_lossy(name);
        let path = format!("{}/{name}", self.folders[folder as usize]);
        let path = path.trim_start_matches('/');
        if let Some(target) = self.links.get(path) {
            return Named::Link(target.as_bytes().to_vec());
        }
        let number = self.folders.iter().position(|folder| *folder == path);
        number.map_or(Named::Other, |number| Named::Folder(number as u32))
    }

    fn above(&self, folder: u32) -> Option<u32> {
        let (above, _) = self.folders[folder as usize].rsplit_once('/').unwrap_or_default();
        (folder > 0).then(|| self.folders.iter().position(|folder| *folder == above).expect("there") as u32)
    }
}

#[test]
fn links_that_lead_out_or_may_do_so_are_told_from_others() {
    let many = "a/".repeat(10) + "x";
    let many: &'static str = many.leak();
    let cases: [(&[(&'static str, &'static str)], bool); 19] = [
        (&[("l", "f")], false),
        (&[("l", "d/./f")], false),
        (&[("l", "/etc/passwd")], true),
        (&[("l", "..")], true),
        (&[("d/l", "..")], false),
        (&[("d/l", "../..")], true),
        (&[("d/l", "../d/../../y")], true),
        (&[("l", "d/e/../../d")], false),
        (&[("l", "d/e/../../..")], true),
        // What another link leads to may be another folder one day, and so may what is not there.
        (&[("l", "a/.."), ("a", "d/e")], true),
        (&[("l", "a/../.."), ("a", "d/e")], true),
        (&[("l", "d/a/.."), ("d/a", "../..")], true),
        (&[("d/l", "a/../../x"), ("d/a", "..")], true),
        (&[("l", "nothing/..")], true),
        (&[("l", "a/x"), ("a", "d/e")], false),
        (&[("l", "d/a/x"), ("d/a", "../b"), ("b", "d")], false),
        (&[("l", "l")], true),
        (&[("l", "m"), ("m", "l")], true),
        (&[("l", many), ("a", ".")], false),
    ];
    for (links, is_outside) in cases {
        let mut tree = Tree { folders: vec!["", "d", "d/e"], links: links.iter().copied().collect() };
        let (path, target) = links[0];
        let folder = u32::from(path.starts_with("d/"));
        assert_eq!(leads_outside(folder, target.as_bytes(), &mut tree), is_outside, "{links:?}");
    }
}
