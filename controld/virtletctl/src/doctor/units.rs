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

/// A unit, as `systemctl show` tells it.
#[derive(Debug, Default)]
struct Unit {
    load: String,
    active: String,
    sub: String,
    file: String,
}

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    if !host.has(SYSTEMD) {
        return CHECKS.map(|check| Finding::ok(check, "no systemd runs here")).into();
    }
    match &facts.units {
        Ok(said) => judged(&parse(&said.stdout)).into(),
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
                "UnitFileState" => value.clone_into(&mut unit.file),
                _ => {}
            }
        }
        units.insert(id, unit);
    }
    units
}

fn judged(units: &BTreeMap<String, Unit>) -> [Finding; 4] {
    let [controld, tapmanager, virtlogd, libvirt] = CHECKS;
    [
        ours(controld, "controld.service", units),
        ours(tapmanager, "tapmanager.service", units),
        started_by_others(virtlogd, &VIRTLOGD, units),
        started_by_others(libvirt, &LIBVIRT, units),
    ]
}

fn ours(check: &'static str, name: &str, units: &BTreeMap<String, Unit>) -> Finding {
    let Some(unit) = units.get(name).filter(|unit| unit.load == "loaded") else {
        let state = units.get(name).map_or("not told of", |unit| unit.load.as_str());
        let mend = "install the package of virtlet-rs, or deploy/*.service, then systemctl daemon-reload";
        return Finding::failure(check, format!("`{name}` is {state}"), mend);
    };
    let Unit { active, sub, file, .. } = unit;
    if active != "active" {
        let mend = format!("systemctl enable --now {name}; journalctl -u {name}");
        return Finding::failure(check, format!("`{name}` is {active} ({sub})"), mend);
    }
    if !matches!(file.as_str(), "enabled" | "enabled-runtime" | "static" | "indirect" | "alias" | "generated") {
        let seen = format!("`{name}` runs, but is {file}: it is gone after a reboot");
        return Finding::warning(check, seen, format!("systemctl enable {name}"));
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
        judged(&parse(text)).iter().map(|finding| (finding.check, finding.state)).collect()
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
    fn what_does_not_run_or_is_not_there_is_a_failure() {
        for text in ["", "garbage\n\n=\n", &unit("controld.service", "loaded", "failed", "enabled")] {
            assert!(states(text).iter().all(|(_, state)| *state == State::Failure), "{text}");
        }
    }
}
