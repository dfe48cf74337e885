//! The caller of a long piece of work, who may end it, and who is told how far it is.

/// What work asks while it runs, in any of its threads.
pub trait Watch: Sync {
    /// Whether the work is to end soon.
    fn is_interrupted(&self) -> bool;

    /// Notes that so many bytes more were worked on, or so many entries more were found.
    fn progress(&self, amount: u64);
}
