//! The other container runtime of the node, if controld is in front of one: can it be asked, and does it fit with us?

use super::facts::{Facts, NO_SETTINGS, Settings, socket_of};
use super::finding::Finding;
use super::host::{Host, Kind};
use super::units;
use crate::client::Runtime;

const RUNTIME: &str = "proxy.runtime";
const HANDLERS: &str = "proxy.handlers";
const STATS: &str = "proxy.stats";
const ORDER: &str = "proxy.order";
const CHECKS: [&str; 4] = [RUNTIME, HANDLERS, STATS, ORDER];
/// Where container runtimes listen by themselves, and their units.
const KNOWN: [(&str, &str); 3] = [
    ("/run/containerd/containerd.sock", "containerd.service"),
    ("/run/crio/crio.sock", "crio.service"),
    ("/var/run/crio/crio.sock", "crio.service"),
];

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let Ok(settings) = &facts.controld else {
        return CHECKS.map(|check| Finding::unknown(check, NO_SETTINGS)).into();
    };
    let Some(endpoint) = settings.runtime_endpoint.as_deref() else { return without(host).into() };
    let told = match &facts.runtime {
        Some(told) => told.as_ref().map_err(String::as_str),
        None => Err("it was not asked"),
    };
    vec![runtime(host, endpoint, told), handlers(settings, told), stats(told), order(facts, endpoint)]
}

/// Of a node whose pods are all machines. That it could have containers, too, is no fault of it.
fn without(host: &Host) -> [Finding; 4] {
    let other = KNOWN.iter().find(|(socket, _)| host.has(socket));
    let seen = match other {
        Some((socket, _)) => format!(
            "not used: all pods of this node are machines. `{socket}` is there: by `proxy.runtime_endpoint` pods can be its containers, \
             too (`virtletctl proxy enable --runtime-endpoint unix://{socket} --check`)"
        ),
        None => "not used: all pods of this node are machines".to_owned(),
    };
    CHECKS.map(|check| Finding::ok(check, if check == RUNTIME { seen.clone() } else { "not used".to_owned() }))
}

fn runtime(host: &Host, endpoint: &str, told: Result<&Runtime, &str>) -> Finding {
    let unit = unit_of(endpoint).unwrap_or("the container runtime");
    let mend = format!("systemctl restart {unit}, or correct `proxy.runtime_endpoint` in controld.toml");
    match host.look(socket_of(endpoint)) {
        Ok(None) => return Finding::failure(RUNTIME, format!("`{endpoint}` is not there: no container starts"), mend),
        Ok(Some(looks)) if looks.kind != Kind::Socket => {
            return Finding::failure(RUNTIME, format!("`{endpoint}` is not a socket: no container starts"), mend);
        }
        Ok(Some(_)) => {}
        Err(error) => return Finding::unknown(RUNTIME, error),
    }
    match told {
        Ok(runtime) => Finding::ok(RUNTIME, format!("{} answers at `{endpoint}`", runtime.name)),
        Err(why) => Finding::failure(RUNTIME, format!("`{endpoint}` is there, but: {why}; no container starts"), mend),
    }
}

fn handlers(settings: &Settings, told: Result<&Runtime, &str>) -> Finding {
    let Ok(runtime) = told else { return Finding::unknown(HANDLERS, NOT_ASKED) };
    let shared = settings.shared(runtime);
    if shared.is_empty() {
        return Finding::ok(HANDLERS, "no runtime handler has the same name on both sides");
    }
    let seen = format!("both sides have the runtime handlers {}: pods that name one are refused", shared.join(", "));
    let mend = "give them another name in controld.toml (`runtime_handlers`, `handlers.NAME`, `images.default_handler`), and in \
                their RuntimeClasses";
    Finding::failure(HANDLERS, seen, mend)
}

/// kubelet asks CRI-O for nothing of that at CRI-O's own socket: there it looks itself.
fn stats(told: Result<&Runtime, &str>) -> Finding {
    let Ok(Runtime { name, running, with_stats, .. }) = told else { return Finding::unknown(STATS, NOT_ASKED) };
    match (running, with_stats) {
        (0, _) => Finding::ok(STATS, "no container runs, so there is nothing to look at"),
        (_, 0) => {
            let seen = format!("of {running} containers that run, {name} tells by CRI of none what it uses");
            let mend = "turn its CRI stats on, or update it: behind controld's socket kubelet has no other source";
            Finding::warning(STATS, seen, mend)
        }
        _ => Finding::ok(STATS, format!("told of {with_stats} containers; {running} run")),
    }
}

/// In another order all works too, once all are there.
fn order(facts: &Facts, endpoint: &str) -> Finding {
    let Some(unit) = unit_of(endpoint) else {
        return Finding::ok(ORDER, format!("the unit of `{endpoint}` is not known; controld waits for its socket"));
    };
    let said = match &facts.units {
        Ok(said) => said,
        Err(error) => return Finding::unknown(ORDER, error),
    };
    match units::out_of_order(&said.stdout, unit) {
        None => Finding::unknown(ORDER, "systemctl tells nothing of `controld.service`"),
        Some(lacks) if lacks.is_empty() => {
            Finding::ok(ORDER, format!("`controld.service` starts after `{unit}` and before kubelet"))
        }
        Some(lacks) => {
            let lacks = lacks.join(" ");
            let seen =
                format!("`controld.service` has no {lacks}: at a boot kubelet may ask before controld can answer");
            Finding::warning(ORDER, seen, format!("systemctl edit controld, and write: [Unit] {lacks}"))
        }
    }
}

/// Why checks that need an answer are not made.
const NOT_ASKED: &str = "the container runtime does not answer";

/// The unit that makes a socket.
fn unit_of(endpoint: &str) -> Option<&'static str> {
    let socket = socket_of(endpoint).to_str()?;
    KNOWN.iter().find(|(known, _)| *known == socket).map(|(_, unit)| *unit)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::super::finding::State;
    use super::super::program::Said;
    use super::super::tests::{facts, tree};
    use super::*;

    const CONTAINERD: &str = "run/containerd/containerd.sock";
    const UNIT: &str = "Id=controld.service\nLoadState=loaded\n";

    /// A node with such a runtime, and what systemctl says of controld's unit.
    fn node(runtime: Result<Runtime, String>, unit: &str) -> Facts {
        let mut facts = facts();
        if let Ok(settings) = &mut facts.controld {
            settings.runtime_endpoint = Some(format!("unix:///{CONTAINERD}"));
        }
        facts.runtime = Some(runtime);
        let stdout = format!("{UNIT}{unit}\n\n");
        facts.units = Ok(Said { status: ExitStatus::from_raw(0), stdout, stderr: String::new() });
        facts
    }

    fn socket() -> (tempfile::TempDir, Host) {
        let (dir, host) = tree(&[("run/containerd/x", "")]);
        drop(UnixListener::bind(dir.path().join(CONTAINERD)).expect("socket"));
        (dir, host)
    }

    fn states(host: &Host, facts: &Facts) -> [(State, String); 4] {
        let found: Vec<_> = look(host, facts).into_iter().map(|finding| (finding.state, finding.seen)).collect();
        found.try_into().expect("all four")
    }

    fn containerd() -> Runtime {
        Runtime {
            name: "containerd 2.4.2".into(),
            handlers: ["".to_owned(), "runc".to_owned()].into(),
            running: 3,
            with_stats: 3,
            ..Runtime::default()
        }
    }

    const ORDERED: &str = "After=basic.target containerd.service crio.service\nBefore=kubelet.service shutdown.target";

    #[test]
    fn a_runtime_that_answers_and_fits_is_well() {
        let (_dir, host) = socket();
        let found = states(&host, &node(Ok(containerd()), ORDERED));
        assert!(found.iter().all(|(state, _)| *state == State::Ok), "{found:?}");
        assert_eq!(found[0].1, "containerd 2.4.2 answers at `unix:///run/containerd/containerd.sock`");
    }

    #[test]
    fn one_that_cannot_be_asked_is_a_failure() {
        let (_dir, host) = tree(&[]);
        let away = node(Err("Connection refused (os error 111)".into()), ORDERED);
        let [runtime, handlers, stats, order] = states(&host, &away);
        assert!(runtime.0 == State::Failure && runtime.1.contains("is not there"), "{runtime:?}");
        for unknown in [handlers, stats] {
            assert_eq!(unknown, (State::Warning, format!("not known: {NOT_ASKED}")));
        }
        assert_eq!(order.0, State::Ok);
        let (_dir, host) = socket();
        let [runtime, ..] = states(&host, &away);
        assert!(runtime.0 == State::Failure && runtime.1.contains("is there, but: Connection refused"), "{runtime:?}");
        let (_dir, host) = tree(&[(CONTAINERD, "")]);
        let [runtime, ..] = states(&host, &away);
        assert!(runtime.0 == State::Failure && runtime.1.contains("is not a socket"), "{runtime:?}");
    }

    #[test]
    fn a_handler_of_both_sides_is_a_failure() {
        let (_dir, host) = socket();
        let mut runtime = containerd();
        runtime.handlers.insert("virtlet".into());
        let [_, handlers, ..] = states(&host, &node(Ok(runtime), ORDERED));
        assert!(handlers.0 == State::Failure && handlers.1.contains("handlers virtlet:"), "{handlers:?}");
    }

    #[test]
    fn containers_without_stats_are_a_warning() {
        let (_dir, host) = socket();
        let crio = Runtime { name: "cri-o 1.33.0".into(), with_stats: 0, ..containerd() };
        let [_, _, stats, _] = states(&host, &node(Ok(crio.clone()), ORDERED));
        assert!(stats.0 == State::Warning && stats.1.contains("cri-o 1.33.0 tells by CRI of none"), "{stats:?}");
        let idle = Runtime { running: 0, ..crio };
        assert_eq!(states(&host, &node(Ok(idle), ORDERED))[2].0, State::Ok);
    }

    #[test]
    fn a_unit_in_another_order_is_a_warning() {
        let (_dir, host) = socket();
        for (unit, lacks) in [
            ("After=basic.target\nBefore=kubelet.service", "no After=containerd.service:"),
            ("After=containerd.service\nBefore=", "no Before=kubelet.service:"),
            ("", "no After=containerd.service Before=kubelet.service:"),
        ] {
            let [_, _, _, order] = states(&host, &node(Ok(containerd()), unit));
            assert!(order.0 == State::Warning && order.1.contains(lacks), "{unit}: {order:?}");
        }
        let mut elsewhere = node(Ok(containerd()), "");
        if let Ok(settings) = &mut elsewhere.controld {
            settings.runtime_endpoint = Some("unix:///run/k3s/containerd/containerd.sock".into());
        }
        assert_eq!(states(&host, &elsewhere)[3].0, State::Ok);
    }

    #[test]
    fn a_node_of_machines_alone_is_well_and_told_of_containers() {
        let (_dir, host) = tree(&[]);
        let found = states(&host, &facts());
        assert!(found.iter().all(|(state, seen)| *state == State::Ok && seen.starts_with("not used")), "{found:?}");
        let (_dir, host) = socket();
        let [runtime, ..] = states(&host, &facts());
        assert_eq!(runtime.0, State::Ok);
        assert!(runtime.1.contains("--runtime-endpoint unix:///run/containerd/containerd.sock --check"), "{runtime:?}");
    }
}
