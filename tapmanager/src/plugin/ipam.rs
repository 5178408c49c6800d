//! Runs the IPAM plugin that a network names, as section 4 of the CNI specification says: with our own environment but
//! for the command, and with the whole configuration of the network on its standard input.
//!
//! Called by [`super`] and [`super::add`].

use std::io;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rscni_plugin::types::{CNIResult, ErrorResult, NetConf};
use rscni_plugin::version::SpecVersion;
use serde_json::Value;

use super::failure::{Code, Failure};
use super::reader::shown;

/// How long an IPAM plugin may take. One that asks a DHCP server takes its time; runtimes give us a minute or more.
pub(super) const DEADLINE: Duration = Duration::from_secs(45);
/// Most bytes of its answer.
const MAX_ANSWER: u64 = 1 << 20;

/// An IPAM plugin.
#[derive(Debug)]
pub(super) struct Ipam {
    kind: String,
    program: PathBuf,
    deadline: Duration,
}

/// Its answer to VERSION.
#[derive(Debug, serde::Deserialize)]
struct Versions {
    #[serde(rename = "supportedVersions")]
    spoken: Vec<String>,
}

// === impl Ipam ===

impl Ipam {
    /// The one that the network names, from the first of `dirs` that has it; `None` if it names none.
    ///
    /// # Errors
    /// If none has it.
    pub(super) fn of(conf: &NetConf, dirs: &[PathBuf], deadline: Duration) -> Result<Option<Self>, Failure> {
        let Some(ipam) = conf.ipam.as_ref().filter(|ipam| !ipam.r#type.is_empty()) else { return Ok(None) };
        let kind = ipam.r#type.clone();
        if kind.contains('/') || kind.starts_with('.') || kind.contains(char::is_control) {
            return Err(Failure::new(
                Code::Config,
                format!("`ipam.type` is `{}`, which is no plugin's name", shown(&kind)),
            ));
        }
        let found = dirs.iter().map(|dir| dir.join(&kind)).find(|path| path.is_file());
        let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let program = found.ok_or_else(|| {
            Failure::new(
                Code::Config,
                format!(
                    "IPAM plugin `{}` is in no directory of `CNI_PATH` ({}); install it there",
                    shown(&kind),
                    dirs.join(", ")
                ),
            )
        })?;
        Ok(Some(Self { kind, program, deadline }))
    }

    /// Asks for addresses.
    ///
    /// # Errors
    /// What it says, or that it says nothing that can be used.
    pub(super) fn add(&self, conf: &NetConf) -> Result<CNIResult, Failure> {
        let answer = self.run("ADD", conf)?;
        serde_json::from_slice(&answer)
            .map_err(Failure::because(Code::Ipam, format!("IPAM plugin `{}` wrote no result", self.kind)))
    }

    /// Gives addresses back.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn del(&self, conf: &NetConf) -> Result<(), Failure> {
        self.run("DEL", conf).map(drop)
    }

    /// Asks whether addresses are still given.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn check(&self, conf: &NetConf) -> Result<(), Failure> {
        self.run("CHECK", conf).map(drop)
    }

    /// Asks whether it could give addresses. Plugins that do not know this command answer it in words that mislead, so it is
    /// asked first whether it speaks the network's version.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn status(&self, conf: &NetConf) -> Result<(), Failure> {
        let spoken = self.versions(conf)?;
        if !spoken.contains(&conf.cni_version) {
            return Err(Failure::new(
                Code::Config,
                format!(
                    "IPAM plugin `{}` does not speak CNI {}, but {}; set `cniVersion` of the network to one of these, or \
                     install a newer one",
                    self.kind,
                    shown(&conf.cni_version),
                    spoken.iter().map(|version| shown(version)).collect::<Vec<_>>().join(", ")
                ),
            ));
        }
        self.run("STATUS", conf).map(drop)
    }

    /// The versions that it speaks.
    fn versions(&self, conf: &NetConf) -> Result<Vec<String>, Failure> {
        let answer: Versions = serde_json::from_slice(&self.run("VERSION", conf)?)
            .map_err(Failure::because(Code::Ipam, format!("IPAM plugin `{}` does not say its versions", self.kind)))?;
        Ok(answer.spoken)
    }

    /// Has it take back what no valid attachment has.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn gc(&self, conf: &NetConf) -> Result<(), Failure> {
        // An older one has no such command.
        if self.versions(conf)?.contains(&conf.cni_version) { self.run("GC", conf).map(drop) } else { Ok(()) }
    }

    fn run(&self, command: &str, conf: &NetConf) -> Result<Vec<u8>, Failure> {
        let failed = |doing: &str| {
            Failure::because::<io::Error>(Code::Ipam, format!("failed to {doing} the IPAM plugin `{}`", self.kind))
        };
        let input =
            input(conf).map_err(Failure::because(Code::Ipam, "failed to write a configuration for the IPAM plugin"))?;
        let mut child = Command::new(&self.program)
            .env("CNI_COMMAND", command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("start"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        if let Some(mut stdin) = child.stdin.take() {
            // It need not read what it does not want. The pipe closes with the thread.
            let feeding =
                thread::Builder::new().name("ipam-in".to_owned()).spawn(move || drop(stdin.write_all(&input)));
            feeding.map_err(failed("feed"))?;
        }
        let (done, outcome) = mpsc::sync_channel(1);
        let waiting = thread::Builder::new().name("ipam-out".to_owned()).spawn(move || drop(done.send(finish(child))));
        waiting.map_err(failed("wait for"))?;
        let Ok(ended) = outcome.recv_timeout(self.deadline) else {
            let _ = kill(pid, Signal::SIGKILL);
            return Err(Failure::new(
                Code::Ipam,
                format!(
                    "IPAM plugin `{}` did not end within {} s, so it was killed",
                    self.kind,
                    self.deadline.as_secs()
                ),
            ));
        };
        let (status, answer) = ended.map_err(failed("hear"))?;
        self.answer(status, answer)
    }

    fn answer(&self, status: ExitStatus, answer: Vec<u8>) -> Result<Vec<u8>, Failure> {
        if answer.len() as u64 > MAX_ANSWER {
            return Err(Failure::new(
                Code::Ipam,
                format!("IPAM plugin `{}` wrote more than {MAX_ANSWER} bytes", self.kind),
            ));
        }
        let code = |value: &Value| value.get("code").and_then(Value::as_u64).filter(|code| *code != 0);
        let told = serde_json::from_slice::<Value>(&answer).ok().filter(|value| code(value).is_some());
        if let Some(error) = told.and_then(|value| serde_json::from_value::<ErrorResult>(value).ok()) {
            return Err(Failure::Delegate(error.into()));
        }
        if status.success() {
            return Ok(answer);
        }
        Err(Failure::new(
            Code::Ipam,
            format!("IPAM plugin `{}` failed without a word ({status}); its standard error may say why", self.kind),
        ))
    }
}

fn finish(mut child: Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_ANSWER + 1).read_to_end(&mut answer)?;
    }
    Ok((child.wait()?, answer))
}

/// The network's configuration. An earlier result has the form of its version, which typed values do not show.
fn input(conf: &NetConf) -> Result<Vec<u8>, serde_json::Error> {
    let mut value = serde_json::to_value(conf)?;
    let legacy = conf.version().is_ok_and(SpecVersion::is_legacy);
    if let Some(Value::Object(earlier)) = value.get_mut("prevResult") {
        earlier.insert("cniVersion".to_owned(), conf.cni_version.clone().into());
        if let Some(Value::Array(ips)) = earlier.get_mut("ips").filter(|_| legacy) {
            for ip in ips.iter_mut().filter_map(Value::as_object_mut) {
                let six = ip.get("address").and_then(Value::as_str).is_some_and(|address| address.contains(':'));
                ip.insert("version".to_owned(), if six { "6" } else { "4" }.into());
            }
        }
    }
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests;
