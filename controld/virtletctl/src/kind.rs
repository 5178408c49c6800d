//! The word that kubectl wants in front of a name: `pod/web`, `vmi/web`, `get pods`.

/// What kubectl and KubeVirt call pods and their machines.
const WORDS: [&str; 9] = ["pod", "pods", "po", "vm", "vms", "vmi", "vmis", "virtualmachine", "virtualmachineinstance"];

/// Whether a word is one for pods or machines.
pub(super) fn is_kind(word: &str) -> bool {
    WORDS.contains(&word)
}

/// What follows `pod/` and its like; the whole text if nothing of that kind is in front.
pub(super) fn without(text: &str) -> &str {
    text.split_once('/').filter(|(word, _)| is_kind(word)).map_or(text, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_taken_off_a_name_once() {
        for (text, wanted) in [
            ("pod/web", "web"),
            ("vmi/web", "web"),
            ("po/default/web", "default/web"),
            ("pod/pod/web", "pod/web"),
            ("default/web", "default/web"),
            ("pod", "pod"),
            ("node/web", "node/web"),
        ] {
            assert_eq!(without(text), wanted, "{text}");
        }
    }
}
