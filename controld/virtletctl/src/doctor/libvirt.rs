//! libvirt and its QEMU: do they answer, and what do they lack, by the word of `controld describe libvirt`.

use super::facts::{Facts, Libvirt};
use super::finding::Finding;
use super::host::{Host, HostError};
use super::program::ProgramError;

const CHECK: &str = "libvirt";
const NAMESPACES: &str = "libvirt.namespaces";
const QEMU_CONF: &str = "/etc/libvirt/qemu.conf";

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    vec![answers(facts), namespaces(host).unwrap_or_else(|error| Finding::unknown(NAMESPACES, error))]
}

/// Whether each QEMU has a `/dev` of its own, in which alone libvirt gives it its disks. So it is unless `qemu.conf` says otherwise.
fn namespaces(host: &Host) -> Result<Finding, HostError> {
    let text = host.read(QEMU_CONF)?.unwrap_or_default();
    let without_remarks: String =
        text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let list = without_remarks.split("namespaces").nth(1).and_then(|rest| rest.split_once('[')?.1.split_once(']'));
    match list {
        Some((names, _)) if !names.contains("\"mount\"") => {
            let seen = format!(
                "`namespaces` in {QEMU_CONF} has no `mount`: libvirt gives the node's own device nodes to QEMU's user"
            );
            let mend = "add \"mount\" to namespaces in qemu.conf, then restart libvirt";
            Ok(Finding::warning(NAMESPACES, seen, mend))
        }
        Some(_) | None => Ok(Finding::ok(NAMESPACES, "each QEMU has a /dev of its own")),
    }
}

fn answers(facts: &Facts) -> Finding {
    let uri = facts.controld.as_ref().map_or("libvirt", |settings| settings.libvirt_uri.as_str());
    match &facts.libvirt {
        Ok(libvirt) => judged(libvirt),
        Err(error @ (ProgramError::Failed { .. } | ProgramError::Hangs { .. })) => {
            let mend = "systemctl restart libvirtd, or virtqemud where that is what the distribution has; update one before 9.0";
            Finding::failure(CHECK, format!("no answer of `{uri}`: {error}"), mend)
        }
        Err(error) => Finding::unknown(CHECK, error),
    }
}

fn judged(found: &Libvirt) -> Finding {
    let Libvirt { libvirt, qemu, lacks } = found;
    let versions = match qemu {
        Some(qemu) => format!("libvirt {libvirt}, QEMU {qemu}"),
        None => {
            let mend = "install QEMU (Debian: qemu-system-x86), then systemctl restart libvirtd";
            return Finding::failure(CHECK, format!("libvirt {libvirt}: {}", lacks.join("; ")), mend);
        }
    };
    if lacks.is_empty() {
        return Finding::ok(CHECK, versions);
    }
    let mend = "update libvirt and QEMU; Debian 12 has newer ones in its backports";
    Finding::warning(CHECK, format!("{versions}: {}", lacks.join("; ")), mend)
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn a_qemu_without_a_dev_of_its_own_is_told() {
        let state = |text: &str| {
            let (_dir, host) = tree(&[("etc/libvirt/qemu.conf", text)]);
            namespaces(&host).expect("read").state
        };
        for text in ["", "#namespaces = [ ]\n", "user = \"x\"\nnamespaces = [\n  \"mount\"\n]\n"] {
            assert_eq!(state(text), State::Ok, "{text}");
        }
        for text in ["namespaces = []", "namespaces = [ # \"mount\"\n ]"] {
            assert_eq!(state(text), State::Warning, "{text}");
        }
        let (_dir, host) = tree(&[]);
        assert_eq!(namespaces(&host).expect("no file").state, State::Ok);
    }

    #[test]
    fn what_is_missing_is_a_warning_and_no_qemu_is_a_failure() {
        let of = |qemu: Option<&str>, lacks: &[&str]| {
            judged(&Libvirt {
                libvirt: "9.0.0".into(),
                qemu: qemu.map(str::to_owned),
                lacks: lacks.iter().map(|text| (*text).to_owned()).collect(),
            })
        };
        assert_eq!(of(Some("10.0.2"), &[]).state, State::Ok);
        let old = of(Some("8.0.0"), &["QEMU before 9.0.0 lacks iommufd"]);
        assert_eq!(
            (old.state, &*old.seen),
            (State::Warning, "libvirt 9.0.0, QEMU 8.0.0: QEMU before 9.0.0 lacks iommufd")
        );
        assert_eq!(of(None, &["libvirt found no QEMU"]).state, State::Failure);
    }
}
