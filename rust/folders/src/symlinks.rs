//! Where symbolic links of a tree lead: out of it, or not.

/// Names that the resolution of one link may take, links on the way included; the kernel follows 40 links.
const MAX_STEPS: usize = 1_000;

/// What a name in a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A folder, by its number.
    Folder(u32),
    /// A link to this target.
    Link(Vec<u8>),
    /// Something else, or nothing.
    Other,
}

/// What the folders of a tree have.
pub trait Names {
    /// What a name in a folder is.
    fn find(&mut self, folder: u32, name: &[u8]) -> Named;

    /// The folder above another; none above the top folder.
    fn above(&self, folder: u32) -> Option<u32>;
}

/// Whether a link in this folder leads out of the tree, or may do so one day, or takes too many names to tell.
///
/// A link stays inside whatever other links become: it may go up from a folder only, never from what another link leads to,
/// or from what is not there. So no later tree, each of whose links stays inside, makes it lead out.
pub fn leads_outside(folder: u32, target: &[u8], names: &mut impl Names) -> bool {
    // The next name is the last one.
    let mut todo: Vec<Vec<u8>> = Vec::new();
    if !push(&mut todo, target) {
        return true;
    }
    let mut at = Some(folder);
    for _ in 0..MAX_STEPS {
        let Some(name) = todo.pop() else { return false };
        if name == b".." {
            match at.and_then(|folder| names.above(folder)) {
                Some(above) => at = Some(above),
                None => return true,
            }
            continue;
        }
        let Some(folder) = at else { continue }; // below what is not there
        match names.find(folder, &name) {
            Named::Link(target) => {
                if todo.iter().any(|name| name == b"..") || !push(&mut todo, &target) {
                    return true;
                }
            }
            Named::Folder(number) => at = Some(number),
            Named::Other => at = None,
        }
    }
    true
}

/// Adds the names of a target, the last one first. False if it is absolute.
fn push(todo: &mut Vec<Vec<u8>>, target: &[u8]) -> bool {
    let names = target.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    todo.extend(names.into_iter().rev());
    !target.starts_with(b"/")
}
