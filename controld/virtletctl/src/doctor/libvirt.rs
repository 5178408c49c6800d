//! libvirt and its QEMU: do they answer, and what do they lack, by the word of `controld describe libvirt`.

use super::facts::{Facts, Libvirt};
use super::finding::Finding;
use super::host::Host;
use super::program::ProgramError;

const CHECK: &str = "libvirt";

pub(super) fn look(_host: &Host, facts: &Facts) -> Vec<Finding> {
    let uri = facts.controld.as_ref().map_or("libvirt", |settings| settings.libvirt_uri.as_str());
    vec![match &facts.libvirt {
        Ok(libvirt) => judged(libvirt),
        Err(error @ (ProgramError::Failed { .. } | ProgramError::Hangs { .. })) => {
            let mend = "systemctl restart libvirtd, or virtqemud where that is what the distribution has; update one before 9.0";
            Finding::failure(CHECK, format!("no answer of `{uri}`: {error}"), mend)
        }
        Err(error) => Finding::unknown(CHECK, error),
    }]
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
    use super::*;

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
