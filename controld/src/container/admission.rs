//! Which container a pod may be given beside those that it has. Pure.
//!
//! A pod that is a machine has one container at a time. kubelet, which does not know that, makes the next attempt of a container
//! that was created and never came up, and does not remove the old one before: the new one takes its place.

use std::sync::Arc;

use vmspec::error::{Error, Kind, Result};
use vmspec::{ContainerConfig, ContainerId, Mount};

use crate::model::{Container, ContainerState};

/// What becomes of a request for a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It was answered before, by this container.
    Same(ContainerId),
    /// A new one may be made; these, which were never up, have to make way.
    New(Vec<ContainerId>),
}

/// Judges a request by the containers that the pod has.
///
/// # Errors
/// When there is one of that name and attempt already, or one that is not over.
pub(super) fn judge(present: &[Arc<Container>], wanted: &ContainerConfig) -> Result<Admission> {
    let mut replaced = Vec::new();
    for other in present {
        let (name, attempt) = (&other.config.name, other.config.attempt);
        if *name == wanted.name && attempt == wanted.attempt {
            if other.state == ContainerState::Created && is_repeated(&other.config, wanted) {
                return Ok(Admission::Same(other.id));
            }
            let what = format!(
                "pod has container `{}` of name `{name}` and attempt {attempt} already; remove it first",
                other.id
            );
            return Err(Error::new(Kind::Exists, what));
        }
        match other.state {
            ContainerState::Exited => {}
            ContainerState::Created | ContainerState::Uncertain if *name == wanted.name && attempt < wanted.attempt => {
                replaced.push(other.id);
            }
            ContainerState::Created
            | ContainerState::Uncertain
            | ContainerState::Starting
            | ContainerState::Running => {
                let what = format!(
                    "pod has container `{}` (`{name}`, attempt {attempt}) already, and a pod that is a machine has one \
                     at a time; stop or remove it first",
                    other.id
                );
                return Err(Error::new(Kind::State, what));
            }
        }
    }
    Ok(Admission::New(replaced))
}

/// Whether two requests are one that was repeated. kubelet draws the file of the termination message anew for each call.
fn is_repeated(earlier: &ContainerConfig, wanted: &ContainerConfig) -> bool {
    let same = |a: &Mount, b: &Mount| {
        let drawn = a.container_path == wanted.termination_path();
        a == b || drawn && *a == Mount { host_path: a.host_path.clone(), ..b.clone() }
    };
    let mounts = earlier.mounts.len() == wanted.mounts.len()
        && earlier.mounts.iter().zip(&wanted.mounts).all(|(a, b)| same(a, b));
    // The record has the command in the plan alone, and not always, and devices in the network and among the disks.
    let unheeded = ContainerConfig {
        mounts: earlier.mounts.clone(),
        process: earlier.process.clone(),
        command: earlier.command.clone(),
        devices: earlier.devices.clone(),
        cdi: earlier.cdi.clone(),
        ..wanted.clone()
    };
    mounts && *earlier == unheeded
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use vmspec::CommandConfig;

    use super::*;
    use crate::container::tests::container;

    fn wanted(name: &str, attempt: u32) -> ContainerConfig {
        ContainerConfig { name: name.into(), attempt, ..ContainerConfig::default() }
    }

    fn present(state: ContainerState) -> Arc<Container> {
        Arc::new(Container { state, ..container("vm", 1) })
    }

    #[test]
    fn the_next_attempt_replaces_only_what_was_never_up() {
        for (state, kind) in [
            (ContainerState::Created, None),
            (ContainerState::Uncertain, None),
            (ContainerState::Starting, Some(Kind::State)),
            (ContainerState::Running, Some(Kind::State)),
        ] {
            let other = present(state);
            let judged = judge(from_ref(&other), &wanted("vm", 2));
            match kind {
                None => assert_eq!(judged.expect("admitted"), Admission::New(vec![other.id]), "{state:?}"),
                Some(kind) => assert_eq!(judged.expect_err("refused").kind(), kind, "{state:?}"),
            }
            for (name, attempt) in [("vm", 0), ("another", 2)] {
                let refused = judge(from_ref(&other), &wanted(name, attempt)).expect_err("refused");
                assert_eq!(refused.kind(), Kind::State, "{state:?} {name} {attempt}");
            }
        }
        let over = present(ContainerState::Exited);
        assert_eq!(judge(&[over], &wanted("another", 0)).expect("admitted"), Admission::New(Vec::new()));
    }

    #[test]
    fn a_request_that_is_repeated_is_the_same_to_a_record_that_was_read_again() {
        let command = CommandConfig { argv: vec!["sh".into()], read_only_root: true };
        let config = ContainerConfig { command, ..wanted("vm", 0) };
        let text = serde_json::to_vec(&config).expect("writes");
        let read: ContainerConfig = serde_json::from_slice(&text).expect("reads");
        assert!(is_repeated(&read, &config) && !is_repeated(&read, &wanted("vm", 1)));
    }

    #[test]
    fn a_request_that_is_repeated_may_have_another_file_for_the_termination_message() {
        let mount = |container: &str, host: &str| Mount {
            container_path: container.into(),
            host_path: host.into(),
            ..Mount::default()
        };
        let config = |path: &str, mounts: Vec<Mount>| ContainerConfig {
            annotations: [(vmspec::TERMINATION_PATH.to_owned(), path.to_owned())].into(),
            mounts,
            ..wanted("vm", 0)
        };
        let usual = || mount("/dev/termination-log", "containers/vm/0a1b2c3d");
        let redrawn = || mount("/dev/termination-log", "containers/vm/4e5f6071");
        let hosts = || mount("/etc/hosts", "etc-hosts");
        let untold = |mounts| ContainerConfig { mounts, ..wanted("vm", 0) };
        let log = "/dev/termination-log";
        for (case, earlier, repeated, same) in [
            ("drawn anew", config(log, vec![hosts(), usual()]), config(log, vec![hosts(), redrawn()]), true),
            ("drawn anew, without the annotation", untold(vec![usual()]), untold(vec![redrawn()]), true),
            ("another place", config("/m", vec![mount("/m", "a")]), config("/m", vec![mount("/m", "b")]), true),
            ("not that place", config("/m", vec![usual()]), config("/m", vec![redrawn()]), false),
            ("another mount changed", config(log, vec![hosts()]), config(log, vec![mount("/etc/hosts", "b")]), false),
            ("one more", config(log, vec![usual()]), config(log, vec![redrawn(), hosts()]), false),
            (
                "otherwise mounted",
                config(log, vec![usual()]),
                config(log, vec![Mount { readonly: true, ..redrawn() }]),
                false,
            ),
        ] {
            let other = Arc::new(Container { config: earlier, ..container("vm", 0) });
            match judge(from_ref(&other), &repeated) {
                Ok(admission) => assert_eq!((admission, same), (Admission::Same(other.id), true), "{case}"),
                Err(error) => assert_eq!((error.kind(), same), (Kind::Exists, false), "{case}"),
            }
        }
    }

    #[test]
    fn a_request_that_is_repeated_has_the_same_answer() {
        let other = present(ContainerState::Created);
        assert_eq!(judge(from_ref(&other), &other.config).expect("admitted"), Admission::Same(other.id));
        let changed = ContainerConfig { tty: true, ..other.config.clone() };
        assert_eq!(judge(from_ref(&other), &changed).expect_err("refused").kind(), Kind::Exists);
        for state in [ContainerState::Running, ContainerState::Exited] {
            let other = present(state);
            assert_eq!(judge(from_ref(&other), &other.config).expect_err("refused").kind(), Kind::Exists);
        }
    }
}
