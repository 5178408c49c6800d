//! SELinux: is it enforcing, and is our module there?

use super::facts::Facts;
use super::finding::Finding;
use super::host::{Host, HostError};

const CHECK: &str = "selinux";
const ENFORCE: &str = "/sys/fs/selinux/enforce";
/// Modules that are installed, by policy and priority.
const STORE: &str = "/var/lib/selinux";
const MODULE: &str = "virtlet";

pub(super) fn look(host: &Host, _facts: &Facts) -> Vec<Finding> {
    vec![judged(host).unwrap_or_else(|error| Finding::unknown(CHECK, error))]
}

fn judged(host: &Host) -> Result<Finding, HostError> {
    let enforcing = match host.read(ENFORCE)? {
        None => return Ok(Finding::ok(CHECK, "not enabled")),
        Some(text) => text.trim() == "1",
    };
    if !enforcing {
        return Ok(Finding::ok(CHECK, "permissive: it forbids nothing"));
    }
    if is_installed(host)? {
        return Ok(Finding::ok(CHECK, format!("enforcing, with our module `{MODULE}`")));
    }
    let seen =
        format!("enforcing, and our module `{MODULE}` is not installed: it may keep vmwrapper from being started");
    Ok(Finding::failure(CHECK, seen, "build the module of deploy/selinux, then semodule -i virtlet.pp"))
}

fn is_installed(host: &Host) -> Result<bool, HostError> {
    for policy in host.names(STORE)? {
        let modules = format!("{STORE}/{policy}/active/modules");
        if !host.at(&modules).is_dir() {
            continue;
        }
        for priority in host.names(&modules)? {
            if host.has(format!("{modules}/{priority}/{MODULE}")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn state(files: &[(&str, &str)]) -> State {
        let (_dir, host) = tree(files);
        look(&host, &facts())[0].state
    }

    #[test]
    fn only_an_enforcing_kernel_without_our_module_forbids() {
        let (enforcing, file) = (("sys/fs/selinux/enforce", "1"), "var/lib/selinux/targeted/active/modules");
        let (ours, another) = (format!("{file}/400/virtlet/cil"), format!("{file}/100/virt/cil"));
        assert_eq!(state(&[]), State::Ok);
        assert_eq!(state(&[("sys/fs/selinux/enforce", "0")]), State::Ok);
        assert_eq!(state(&[enforcing]), State::Failure);
        assert_eq!(state(&[enforcing, (&another, ""), ("var/lib/selinux/final", "")]), State::Failure);
        assert_eq!(state(&[enforcing, (&another, ""), (&ours, "")]), State::Ok);
    }
}
