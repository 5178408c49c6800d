//! Cgroups of the node: version 2, or version 1, with what limits a machine.

use super::facts::Facts;
use super::finding::Finding;
use super::host::{Host, HostError};

const CHECK: &str = "cgroup.version";
/// Without these, controld puts machines into no cgroup of their pod.
const NEEDED: [&str; 2] = ["cpu", "memory"];
const MEND: &str = "boot with systemd.unified_cgroup_hierarchy=1, and without cgroup_disable=";

pub(super) fn look(host: &Host, _facts: &Facts) -> Vec<Finding> {
    vec![judged(host).unwrap_or_else(|error| Finding::unknown(CHECK, error))]
}

fn judged(host: &Host) -> Result<Finding, HostError> {
    let Some(mounts) = host.read("/proc/self/mounts")? else {
        return Ok(Finding::unknown(CHECK, "`/proc/self/mounts` is not there"));
    };
    let (mut first, mut second) = (Vec::new(), None);
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        match (words.next(), words.next(), words.next()) {
            (Some(at), Some("cgroup2"), _) if second.is_none() => second = Some(at),
            (_, Some("cgroup"), Some(options)) => first.extend(options.split(',')),
            _ => {}
        }
    }
    let has = |controllers: &[&str]| NEEDED.iter().all(|needed| controllers.contains(needed));
    if has(&first) {
        return Ok(Finding::ok(CHECK, "version 1, with cpu and memory"));
    }
    let Some(at) = second else {
        return Ok(Finding::failure(
            CHECK,
            "no cgroups with cpu and memory are mounted: machines have no limits",
            MEND,
        ));
    };
    let controllers = host.word(format!("{at}/cgroup.controllers"))?;
    let controllers: Vec<&str> = controllers.split_whitespace().collect();
    Ok(if has(&controllers) {
        Finding::ok(CHECK, format!("version 2, with {}", controllers.join(" ")))
    } else {
        let seen =
            format!("version 2 at `{at}` has no cpu or no memory ({}): machines have no limits", controllers.join(" "));
        Finding::failure(CHECK, seen, MEND)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn found(files: &[(&str, &str)]) -> Finding {
        let (_dir, host) = tree(files);
        look(&host, &facts()).remove(0)
    }

    #[test]
    fn either_version_will_do() {
        let second = ("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        let well = found(&[second, ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")]);
        assert_eq!((well.state, &*well.seen), (State::Ok, "version 2, with cpuset cpu io memory pids"));
        assert_eq!(found(&[second, ("sys/fs/cgroup/cgroup.controllers", "pids\n")]).state, State::Failure);
        let first = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                     cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
        assert_eq!(found(&[("proc/self/mounts", first)]).seen, "version 1, with cpu and memory");
        assert_eq!(found(&[("proc/self/mounts", "proc /proc proc rw 0 0\n\n garbage")]).state, State::Failure);
        assert_eq!(found(&[]).state, State::Warning);
    }
}
