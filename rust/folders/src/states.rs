//! The states of files that were written, in the form that the cache of the next restore has (MessagePack).

use coregw_core::Cid;

use super::attributes::FileStat;

/// What a writer has written since it was asked last.
#[derive(Default)]
pub(super) struct States {
    /// `[path, [inode, size, mtime, ctime], target]` for each file.
    pub entries: Vec<u8>,
    pub count: u64,
    /// The latest time of a change, in nanoseconds since 1970.
    pub newest: i64,
    /// The same for files that are not below a folder, if they are kept apart.
    pub top: Vec<TopState>,
}

/// The name, state and target of a file.
pub(super) type TopState = (String, (u64, i64, i64, i64), String);

impl States {
    pub fn add(&mut self, path: &str, state: FileStat, target: &Cid) {
        let time = |time: i128| i64::try_from(time).unwrap_or(i64::MAX);
        let (mtime, ctime) = (time(state.mtime), time(state.ctime));
        let out = &mut self.entries;
        out.push(0x93);
        write_text(out, path);
        out.push(0x94);
        out.push(0xcf);
        out.extend(state.inode.to_be_bytes());
        for number in [state.size, mtime, ctime] {
            out.push(0xd3);
            out.extend(number.to_be_bytes());
        }
        write_text(out, &target.text());
        self.count += 1;
        self.newest = self.newest.max(ctime);
    }

    pub fn add_at_top(&mut self, name: String, state: FileStat, target: &Cid) {
        let time = |time: i128| i64::try_from(time).unwrap_or(i64::MAX);
        let times = (time(state.mtime), time(state.ctime));
        self.top.push((name, (state.inode, state.size, times.0, times.1), target.text()));
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(0xdb);
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}
