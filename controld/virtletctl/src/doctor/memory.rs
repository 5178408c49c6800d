//! Huge pages: how many there are of each size, and whether QEMU reaches them.

use super::facts::Facts;
use super::finding::Finding;
use super::host::{Host, HostError};

const CHECK: &str = "hugepages";
const DIR: &str = "/sys/kernel/mm/hugepages";

pub(super) fn look(host: &Host, _facts: &Facts) -> Vec<Finding> {
    vec![hugepages(host).unwrap_or_else(|error| Finding::unknown(CHECK, error))]
}

fn hugepages(host: &Host) -> Result<Finding, HostError> {
    let mut kinds = Vec::new();
    for name in host.names(DIR)? {
        let Some(size) = name.strip_prefix("hugepages-") else { continue };
        let number = |file: &str| Ok(host.word(format!("{DIR}/{name}/{file}"))?.parse::<u64>().unwrap_or(0));
        let (all, free) = (number("nr_hugepages")?, number("free_hugepages")?);
        if all > 0 {
            kinds.push(format!("{free} of {all} free of {size}"));
        }
    }
    if kinds.is_empty() {
        return Ok(Finding::ok(CHECK, "none are reserved; only pods that ask for huge pages need some"));
    }
    let mounts = host.read("/proc/self/mounts")?.unwrap_or_default();
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    let kinds = kinds.join(", ");
    Ok(if mounted {
        Finding::ok(CHECK, kinds)
    } else {
        let mend = "systemctl enable --now dev-hugepages.mount, or mount -t hugetlbfs hugetlbfs /dev/hugepages; restart libvirtd";
        Finding::warning(CHECK, format!("{kinds}, but no hugetlbfs is mounted: QEMU does not reach them"), mend)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn seen(files: &[(&str, &str)]) -> (State, String) {
        let (_dir, host) = tree(files);
        let finding = look(&host, &facts()).remove(0);
        (finding.state, finding.seen)
    }

    #[test]
    fn pages_count_once_they_can_be_reached() {
        let dir = "sys/kernel/mm/hugepages";
        let (all, free) =
            (format!("{dir}/hugepages-2048kB/nr_hugepages"), format!("{dir}/hugepages-2048kB/free_hugepages"));
        let none = format!("{dir}/hugepages-1048576kB/nr_hugepages");
        let files = [(&*all, "64\n"), (&*free, "32\n"), (&*none, "0\n")];
        let (state, text) = seen(&files);
        assert!(state == State::Warning && text.starts_with("32 of 64 free of 2048kB, but"), "{text}");
        let mount = ("proc/self/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw 0 0\n");
        assert_eq!(seen(&[&files[..], &[mount]].concat()), (State::Ok, "32 of 64 free of 2048kB".into()));
        assert_eq!(seen(&[]).0, State::Ok);
    }
}
