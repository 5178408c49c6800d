//! How long answers are: kubelet takes 16 MiB, and a call whose answer has more fails there. Pure.

use std::collections::BTreeMap;

/// Lengths from which on somebody is to know, each once: the half of what kubelet takes, and all of it.
const MARKS: [usize; 2] = [8 << 20, 16 << 20];

/// How many of [`MARKS`] the last answer of each call has passed.
#[derive(Debug, Default)]
pub(super) struct Lengths(BTreeMap<&'static str, usize>);

impl Lengths {
    /// Whether this answer of `call` has passed a mark that the one before had not.
    pub(super) fn is_news(&mut self, call: &'static str, bytes: usize) -> bool {
        let passed = MARKS.iter().filter(|mark| bytes > **mark).count();
        let before = self.0.insert(call, passed).unwrap_or_default();
        passed > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_told_of_when_it_passes_a_mark() {
        let mut lengths = Lengths::default();
        let mut told = |mib: usize| lengths.is_news("ListContainers", mib << 20);
        assert_eq!(
            [7, 9, 9, 17, 17, 9, 17, 1, 9].map(&mut told),
            [false, true, false, true, false, false, true, false, true]
        );
        assert!(lengths.is_news("ListImages", 9 << 20), "another call");
    }
}
