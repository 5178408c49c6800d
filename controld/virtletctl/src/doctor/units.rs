//! systemd's units: do they run, and will they after a reboot? Pure but for the look whether systemd is there.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::finding::Finding;
use super::host::Host;

/// What is there if systemd runs the node (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
const CHECKS: [&str; 4] = ["unit.controld", "unit.tapmanager", "unit.virtlogd", "unit.libvirt"];
/// Either is a virtlogd that answers: its socket starts it.
const VIRTLOGD: [&str; 2] = ["virtlogd.socket", "virtlogd.service"];
/// Any of these is a libvirt that answers.
const LIBVIRT: [&str; 4] = ["virtqemud.socket", "virtqemud.service", "libvirtd.socket", "libvirtd.service"];

/// Where packages have units. A file of an administrator hides one there, and so all that a later release changes in it.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system/", "/lib/systemd/system/"];

const KUBELET: &str = "kubelet.service";

/// A unit, as `systemctl show` tells it.
#[derive(Debug, Default)]
struct Unit {
    load: String,
    active: String,
    sub: String,
    file: String,
    /// Where its file is.
    path: String,
    after: Vec<String>,
    before: Vec<String>,
}

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    if !host.has(SYSTEMD) {
        return CHECKS.map(|check| Finding::ok(check, "no systemd runs here")).into();
    }
    match &facts.units {
        Ok(said) => judged(&parse(&said.stdout), |path| host.has(path)).into(),
        Err(error) => CHECKS.map(|check| Finding::unknown(check, error)).into(),
    }
}

/// Blocks of lines `Key=value`, one for each unit, with empty lines between them.
fn parse(text: &str) -> BTreeMap<String, Unit> {
    let mut units = BTreeMap::new();
    for block in text.split("\n\n") {
        let (mut id, mut unit) = (String::new(), Unit::default());
        for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "Id" => value.clone_into(&mut id),
                "LoadState" => value.clone_into(&mut unit.load),
                "ActiveState" => value.clone_into(&mut unit.active),
                "SubState" => value.clone_into(&mut unit.sub),
                "FragmentPath" => value.clone_into(&mut unit.path),
                "After" => unit.after = value.split(' ').map(str::to_owned).collect(),
                "Before" => unit.before = value.split(' ').map(str::to_owned).collect(),
                "UnitFileState" => value.clone_into(&mut unit.file),
                _ => {}
            }
        }
        units.insert(id, unit);
    }
    units
}

/// Which of the units around controld's it does not start in order with: after `runtime`, and before kubelet's. Of what systemctl said;
/// `None` if it did not tell of controld's unit.
pub(super) fn out_of_order(told: &str, runtime: &str) -> Option<Vec<String>> {
    let units = parse(told);
    let unit = units.get("controld.service").filter(|unit| unit.load == "loaded")?;
    let has = |list: &[String], name: &str| list.iter().any(|unit| unit == name);
    let after = (!has(&unit.after, runtime)).then(|| format!("After={runtime}"));
    let before = (!has(&unit.before, KUBELET)).then(|| format!("Before={KUBELET}"));
    Some(after.into_iter().chain(before).collect())
}

/// `has` says whether there is a file.
fn judged(units: &BTreeMap<String, Unit>, has: impl Fn(&str) -> bool) -> [Finding; 4] {
    let [controld, tapmanager, virtlogd, libvirt] = CHECKS;
    [
        ours(controld, "controld.service", units, &has),
        ours(tapmanager, "tapmanager.service", units, &has),
        started_by_others(virtlogd, &VIRTLOGD, units),
        started_by_others(libvirt, &LIBVIRT, units),
    ]
}

fn ours(check: &'static str, name: &str, units: &BTreeMap<String, Unit>, has: &impl Fn(&str) -> bool) -> Finding {
    let Some(unit) = units.get(name).filter(|unit| unit.load == "loaded") else {
        let state = units.get(name).map_or("not told of", |unit| unit.load.as_str());
        let mend = "install the package of virtlet-rs, or deploy/*.service, then systemctl daemon-reload";
        return Finding::failure(check, format!("`{name}` is {state}"), mend);
    };
    let Unit { active, sub, file, path, .. } = unit;
    if active != "active" {
        let mend = format!("systemctl enable --now {name}; journalctl -u {name}");
        return Finding::failure(check, format!("`{name}` is {active} ({sub})"), mend);
    }
    if !matches!(file.as_str(), "enabled" | "enabled-runtime" | "static" | "indirect" | "alias" | "generated") {
        let seen = format!("`{name}` runs, but is {file}: it is gone after a reboot");
        return Finding::warning(check, seen, format!("systemctl enable {name}"));
    }
    let packaged = PACKAGED.map(|dir| format!("{dir}{name}"));
    if !path.is_empty() && !packaged.contains(path) && packaged.iter().any(|packaged| has(packaged)) {
        let seen =
            format!("`{name}` is of `{path}`, which hides the package's; a node's own settings belong into a drop-in");
        return Finding::warning(
            check,
            seen,
            format!("rm {path} && systemctl daemon-reload && systemctl restart {name}"),
        );
    }
    Finding::ok(check, format!("`{name}` is active ({sub}), {file}"))
}

/// Of the distribution's: sockets, or other units, start them.
fn started_by_others(check: &'static str, names: &[&str], units: &BTreeMap<String, Unit>) -> Finding {
    let known = |name: &&&str| units.get(**name).is_some_and(|unit| unit.load == "loaded");
    let active = names.iter().find(|name| units.get(**name).is_some_and(|unit| unit.active == "active"));
    if let Some(name) = active {
        return Finding::ok(check, format!("`{name}` is active"));
    }
    match names.iter().find(known) {
        Some(name) => {
            Finding::failure(check, format!("`{name}` is not active"), format!("systemctl enable --now {name}"))
        }
        None => {
            let mend = "install libvirt's daemon (Debian: libvirt-daemon-system)";
            Finding::failure(check, format!("no unit {} is installed", names.join(", ")), mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn states(text: &str) -> Vec<(&'static str, State)> {
        judged(&parse(text), |_| true).iter().map(|finding| (finding.check, finding.state)).collect()
    }

    fn unit(id: &str, load: &str, active: &str, file: &str) -> String {
        format!("Id={id}\nLoadState={load}\nActiveState={active}\nSubState=x\nUnitFileState={file}\n\n")
    }

    #[test]
    fn what_runs_and_is_enabled_is_well() {
        let text = [
            unit("controld.service", "loaded", "active", "enabled"),
            unit("tapmanager.service", "loaded", "active", "disabled"),
            unit("virtlogd.service", "loaded", "inactive", "indirect"),
            unit("virtlogd.socket", "loaded", "active", "enabled"),
            unit("libvirtd.service", "loaded", "inactive", "enabled"),
            unit("virtqemud.socket", "loaded", "active", "enabled"),
        ];
        let wanted = [State::Ok, State::Warning, State::Ok, State::Ok];
        assert_eq!(states(&text.concat()), CHECKS.into_iter().zip(wanted).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_that_hides_the_packages_is_told_with_what_takes_it_away() {
        let of = |path: &str, has: bool| {
            let text = unit("controld.service", "loaded", "active", "enabled").replace("\n\n", "");
            let [controld, ..] = judged(&parse(&format!("{text}\nFragmentPath={path}\n\n")), |_| has);
            controld
        };
        for packaged in ["/usr/lib/systemd/system/controld.service", "/lib/systemd/system/controld.service"] {
            assert_eq!(of(packaged, true).state, State::Ok);
        }
        let by_hand = "/etc/systemd/system/controld.service";
        assert_eq!(of(by_hand, false).state, State::Ok, "there is no package's");
        let hidden = of(by_hand, true);
        assert_eq!(hidden.state, State::Warning);
        assert!(hidden.seen.contains("hides the package's"), "{}", hidden.seen);
        let mend =
            "rm /etc/systemd/system/controld.service && systemctl daemon-reload && systemctl restart controld.service";
        assert_eq!(hidden.mend.as_deref(), Some(mend));
    }

    #[test]
    fn what_does_not_run_or_is_not_there_is_a_failure() {
        for text in ["", "garbage\n\n=\n", &unit("controld.service", "loaded", "failed", "enabled")] {
            assert!(states(text).iter().all(|(_, state)| *state == State::Failure), "{text}");
        }
    }
}
