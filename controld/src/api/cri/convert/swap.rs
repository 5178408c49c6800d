//! Swap of a container: kubelet says it as the file of a cgroup of version 2, among those that it would have written as they are.
//! Of these it is the only one that is heeded.

use std::collections::HashMap;

use vmspec::error::Result;

use super::invalid;

/// The file, which kubelet names.
const FILE: &str = "memory.swap.max";
/// What stands there for no limit.
const MAX: &str = "max";

/// Bytes of swap that a container may have; `u64::MAX` is no limit.
pub(super) fn of(unified: &HashMap<String, String>) -> Result<Option<u64>> {
    let number = |text: &String| match text.trim() {
        MAX => Ok(u64::MAX),
        text => text.parse().map_err(|_| invalid(format!("`{FILE}` is `{text}` and neither `{MAX}` nor bytes"))),
    };
    unified.get(FILE).map(number).transpose()
}

/// The same as CRI says it.
pub(super) fn unified(swap: Option<u64>) -> HashMap<String, String> {
    let text = |bytes: u64| if bytes == u64::MAX { MAX.to_owned() } else { bytes.to_string() };
    swap.map(|bytes| (FILE.to_owned(), text(bytes))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_read_and_told_as_the_kernels_file() {
        for (text, bytes) in [("0", 0), ("1048576", 1 << 20), ("max", u64::MAX)] {
            let said = HashMap::from([(FILE.to_owned(), text.to_owned())]);
            assert_eq!(of(&said).expect("bytes"), Some(bytes));
            assert_eq!(unified(Some(bytes)), said);
        }
        let others = HashMap::from([("memory.high".to_owned(), "1".to_owned())]);
        assert_eq!(of(&others).expect("not heeded"), None);
        let nonsense = HashMap::from([(FILE.to_owned(), "-1".to_owned())]);
        assert!(of(&nonsense).expect_err("nonsense").to_string().contains("`memory.swap.max` is `-1`"));
    }
}
