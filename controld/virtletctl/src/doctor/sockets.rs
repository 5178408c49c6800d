//! The three sockets: are they there, whose are they, does somebody answer?
//!
//! The hand-off socket is not connected to: only vmwrapper may, and tapmanager logs who tries. The kernel's list of sockets says
//! whether somebody listens.

use std::path::Path;

use super::facts::{Facts, NO_SETTINGS, Settings};
use super::finding::{Finding, State};
use super::host::{Host, HostError, Kind, Looks};
use crate::text::shown;

const CRI: &str = "socket.cri";
const TAP: &str = "socket.tap";
const HANDOFF: &str = "socket.handoff";
/// All bits but its owner's.
const OF_OTHERS: u32 = 0o077;
/// Those of neither its owner nor its group.
const OF_STRANGERS: u32 = 0o007;
/// A socket that listens, in `/proc/net/unix`.
const LISTENS: &str = "00010000";

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    vec![cri(host, facts), tap(host, facts), handoff(host, facts)]
}

fn cri(host: &Host, facts: &Facts) -> Finding {
    let socket = &facts.cri_socket;
    if let Ok(settings) = &facts.controld
        && settings.cri_socket != *socket
    {
        let ours = settings.cri_socket.display();
        let seen = format!("controld is set to listen at `{ours}`, not at `{}`", socket.display());
        return Finding::warning(CRI, seen, format!("virtletctl --socket {ours} doctor"));
    }
    let answer = match &facts.cri {
        Ok(answers) => Ok(format!("{} {} answers", answers.version.runtime_name, answers.version.runtime_version)),
        Err(error) => Err(error.clone()),
    };
    judged(CRI, host, socket, answer, "controld", OF_OTHERS)
}

fn tap(host: &Host, facts: &Facts) -> Finding {
    let Ok(settings) = &facts.controld else { return Finding::unknown(TAP, NO_SETTINGS) };
    if let Some(other) = elsewhere(TAP, &settings.tap_socket, "control.sock", facts) {
        return other;
    }
    let answer = match &facts.tap {
        Ok(status) if status.ready => Ok(format!("{} answers", status.server)),
        // The network itself is another check.
        Ok(status) => Ok(format!("{} answers, and is not ready: {}", status.server, status.reason)),
        Err(error) => Err(error.to_string()),
    };
    let is_ready = facts.tap.as_ref().is_ok_and(|status| status.ready);
    let found = judged(TAP, host, &settings.tap_socket, answer, "tapmanager", OF_OTHERS);
    if found.state == State::Ok && !is_ready {
        return Finding::warning(TAP, found.seen, "mend what it says; `tapmanager status` asks again");
    }
    found
}

fn handoff(host: &Host, facts: &Facts) -> Finding {
    let Ok(settings) = &facts.controld else { return Finding::unknown(HANDOFF, NO_SETTINGS) };
    if let Some(other) = elsewhere(HANDOFF, &settings.handoff_socket, "handoff.sock", facts) {
        return other;
    }
    let answer = match heard(host, settings) {
        Ok(Heard::Listens) => Ok("somebody listens"),
        // Of a tapmanager in another network namespace the list has neither.
        Ok(Heard::Neither) if facts.tap.is_ok() => Ok("tapmanager runs in another network namespace"),
        Ok(_) => Err("nobody listens".to_owned()),
        Err(error) => return Finding::unknown(HANDOFF, error),
    };
    let answer = answer.map(str::to_owned);
    let found = judged(HANDOFF, host, &settings.handoff_socket, answer, "tapmanager", OF_STRANGERS);
    let looks = host.look(&settings.handoff_socket).ok().flatten();
    if found.state == State::Ok && looks.is_some_and(|looks| looks.gid == 0) {
        let seen = format!("{}, but its group is root's: who QEMU runs as is not known yet", found.seen);
        return Finding::warning(
            HANDOFF,
            seen,
            "systemctl start controld, or set `qemu_uid` and `qemu_gid` in tapmanager.toml",
        );
    }
    found
}

/// Which of tapmanager's sockets listen in this network namespace.
enum Heard {
    /// The hand-off socket.
    Listens,
    /// The other one.
    OnlyControl,
    Neither,
}

fn heard(host: &Host, settings: &Settings) -> Result<Heard, HostError> {
    let list = host.read("/proc/net/unix")?.unwrap_or_default();
    let listens = |socket: &Path| {
        let end = format!(" {}", socket.display());
        list.lines().any(|line| line.ends_with(&end) && line.split_whitespace().nth(3) == Some(LISTENS))
    };
    Ok(if listens(&settings.handoff_socket) {
        Heard::Listens
    } else if listens(&settings.tap_socket) {
        Heard::OnlyControl
    } else {
        Heard::Neither
    })
}

/// That tapmanager makes the socket somewhere else than controld looks for it.
fn elsewhere(check: &'static str, socket: &Path, name: &str, facts: &Facts) -> Option<Finding> {
    let made = facts.tapmanager.as_ref().ok()?.run_dir.join(name);
    (made != socket).then(|| {
        let seen = format!("tapmanager makes `{}`, controld looks for `{}`", made.display(), socket.display());
        Finding::failure(check, seen, "set `run_dir` of tapmanager.toml and controld.toml to the same directory")
    })
}

/// `foreign` are the bits that must not be set.
fn judged(
    check: &'static str,
    host: &Host,
    socket: &Path,
    answer: Result<String, String>,
    daemon: &str,
    foreign: u32,
) -> Finding {
    let path = socket.display();
    let start = format!("systemctl restart {daemon}; journalctl -u {daemon} says why it does not run");
    let looks = match host.look(socket) {
        Ok(Some(looks)) => looks,
        Ok(None) => return Finding::failure(check, format!("`{path}` is not there"), start),
        Err(error) => return Finding::unknown(check, error),
    };
    let Looks { kind, mode, uid, gid } = looks;
    if kind != Kind::Socket {
        return Finding::failure(check, format!("`{path}` is not a socket"), format!("rm {path}; {start}"));
    }
    match answer {
        Err(why) => Finding::failure(check, format!("`{path}` is there, but: {}", shown(&why)), start),
        Ok(_) if mode & foreign != 0 || uid != 0 => {
            let seen = format!("`{path}` has mode {mode:04o}, owner {uid}:{gid}: others may use it");
            Finding::warning(check, seen, start)
        }
        Ok(said) => Finding::ok(check, format!("{said} at `{path}` (mode {mode:04o}, owner {uid}:{gid})")),
    }
}

#[cfg(test)]
mod tests;
