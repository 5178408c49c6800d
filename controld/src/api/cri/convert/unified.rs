//! What kubelet says of a container as files of a cgroup of version 2, among those that it would have written as they are: swap, and, where
//! its feature MemoryQoS is to reserve memory, what is kept for the container (`memory.min` of guaranteed pods, `memory.low` of burstable
//! ones). A machine is held to these.

use std::collections::HashMap;

use vmspec::Resources;
use vmspec::error::Result;

use super::invalid;

/// Most bytes in swap.
const SWAP: &str = "memory.swap.max";
/// Bytes that the kernel never takes away for others.
const MIN: &str = "memory.min";
/// Bytes that the kernel takes only when it finds nothing else to take.
const LOW: &str = "memory.low";
/// Above so many bytes the kernel takes memory back and makes threads wait that want more. QEMU has little to give back, and a vCPU that
/// waits is a guest that stands still: a machine has its limit alone.
const HIGH: &str = "memory.high";
/// What stands there for no limit.
const MAX: &str = "max";

/// Bytes of swap that a container may have, and bytes that are kept for it, by `memory.min` and by `memory.low`; `u64::MAX` is no limit.
pub(super) fn of(unified: &HashMap<String, String>) -> Result<[Option<u64>; 3]> {
    let bytes = |file: &str| {
        let number = |text: &String| match text.trim() {
            MAX => Ok(u64::MAX),
            text => text.parse().map_err(|_| invalid(format!("`{file}` is `{text}` and neither `{MAX}` nor bytes"))),
        };
        unified.get(file).map(number).transpose()
    };
    Ok([bytes(SWAP)?, bytes(MIN)?, bytes(LOW)?])
}

/// The same as CRI says it.
pub(super) fn told(resources: &Resources) -> HashMap<String, String> {
    let text = |bytes: u64| if bytes == u64::MAX { MAX.to_owned() } else { bytes.to_string() };
    let files = [(SWAP, resources.swap), (MIN, resources.memory_min), (LOW, resources.memory_low)];
    files.into_iter().filter_map(|(file, bytes)| Some((file.to_owned(), text(bytes?)))).collect()
}

/// The files that a machine is not held to, with what they would say.
pub(crate) fn unheeded(unified: &HashMap<String, String>) -> Vec<String> {
    let is_heeded = |(file, value): &(&String, &String)| {
        matches!((file.as_str(), value.trim()), (SWAP | MIN | LOW, _) | (HIGH, MAX))
    };
    let files = unified.iter().filter(|file| !is_heeded(file));
    let mut said: Vec<_> = files.map(|(file, value)| format!("{file}={value}")).collect();
    said.sort();
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> HashMap<String, String> {
        files.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn swap_and_memory_that_is_kept_are_read_and_told_as_the_kernels_files() {
        for (text, bytes) in [("0", 0), ("1048576", 1 << 20), ("max", u64::MAX)] {
            let said = files(&[(SWAP, text), (MIN, text), (LOW, text)]);
            assert_eq!(of(&said).expect("bytes"), [Some(bytes); 3]);
            let [swap, memory_min, memory_low] = [Some(bytes); 3];
            assert_eq!(told(&Resources { swap, memory_min, memory_low, ..Resources::default() }), said);
        }
        assert_eq!(of(&files(&[(HIGH, "1")])).expect("not heeded"), [None; 3]);
        for file in [SWAP, MIN, LOW] {
            let refused = of(&files(&[(file, "-1")])).expect_err("nonsense").to_string();
            assert!(refused.contains(&format!("`{file}` is `-1`")), "{refused}");
        }
    }

    #[test]
    fn what_a_machine_is_not_held_to_is_told() {
        let said = files(&[(SWAP, "0"), (MIN, "1"), (LOW, "1"), (HIGH, "2"), ("memory.oom.group", "1")]);
        assert_eq!(unheeded(&said), ["memory.high=2", "memory.oom.group=1"]);
        assert!(unheeded(&files(&[(HIGH, "max")])).is_empty(), "it is how kubelet takes its own word back");
    }
}
