//! One command to one plugin: finding it, what it is told, and what its answer means. Called by [`super::Cni`].
//!
//! Facts are from sections 2 and 4 to 5 of the CNI specification 1.1.0. What a plugin says of itself (its error, its
//! standard error) is kept, cut to a length and freed of control characters, for it ends in an error that people read.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use common::Reason;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::conf::Plugin;
use super::exec::{self, Call, ExecError, Gate, Output};
use super::version::SpecVersion;
use crate::spawner::{Allowed, Spawner};

/// Most characters kept of each text that a plugin wrote.
const MAX_EXCERPT: usize = 1024;

/// What a plugin is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Join the container to the network.
    Add,
    /// Take it out again.
    Del,
    /// Tell whether it is joined as the result of ADD says.
    Check,
    /// Tell which versions of the specification the plugin speaks.
    Version,
    /// Tell whether it could do an ADD now.
    Status,
    /// Take away what belongs to none of the attachments that are told.
    Gc,
}

/// Why a plugin did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// There is no such plugin.
    #[error("it is in none of the plugin directories ({}); install it there", list(dirs))]
    Absent {
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// It could not be run to its end.
    #[error(transparent)]
    Run(Run),
    /// It told its error as the specification says.
    #[error("{0}")]
    Reported(Report),
    /// It failed without a word in the form of the specification.
    #[error("{status}{}", said(stdout, stderr))]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// What it wrote there.
        stdout: String,
        /// What it wrote there.
        stderr: String,
    },
    /// It claims success, but its output makes no sense.
    #[error("it ended well, but wrote no {expected}{}", said(stdout, stderr))]
    Junk {
        /// What it should have written.
        expected: &'static str,
        /// What it wrote instead.
        stdout: String,
        /// What it wrote there.
        stderr: String,
    },
    /// Its result is of the right form, but cannot be used.
    #[error("its result cannot be used")]
    Result(#[source] Reason),
}

/// A run that did not come to an end by itself.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Run(ExecError);

/// The error object of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Below 100: of the specification; else the plugin's own.
    pub(crate) code: u64,
    /// In short.
    pub(crate) msg: String,
    /// At length; may be empty.
    pub(crate) details: String,
}

/// A command to a plugin.
pub(super) struct Ask<'a> {
    pub(super) command: Command,
    /// File name of the executable.
    pub(super) kind: &'a str,
    pub(super) dirs: &'a [PathBuf],
    pub(super) env: Vec<(&'static str, OsString)>,
    pub(super) conf: &'a Map<String, Value>,
    pub(super) limit: Duration,
    pub(super) spawner: &'a Spawner,
    pub(super) gate: Option<Gate<'a>>,
}

/// Runs the plugin. The answer is `None` if it wrote nothing.
pub(super) async fn ask(ask: Ask<'_>) -> Result<Option<Value>, PluginError> {
    let program = find(ask.kind, ask.dirs)?;
    let mut env = ask.env;
    env.push(("CNI_COMMAND", ask.command.as_str().into()));
    let stdin = Value::Object(ask.conf.clone()).to_string();
    let call = Call { program: &program, env, stdin: stdin.as_bytes(), gate: ask.gate, limit: ask.limit };
    let output = exec::run(ask.spawner, call).await.map_err(|cause| PluginError::Run(Run(cause)))?;
    answer(ask.command, &output)
}

/// What a plugin is told on its standard input: its own part of the network's configuration, and what the runtime adds.
pub(super) fn request(
    plugin: &Plugin,
    network: &str,
    version: SpecVersion,
    capabilities: &Map<String, Value>,
    prev: Option<&Value>,
) -> Map<String, Value> {
    let mut conf = plugin.conf.clone();
    // Only what the plugin declares is handed to it, and the declaration itself is the runtime's affair.
    let declared = capabilities.iter().filter(|(name, _)| plugin.declares(name));
    let args: Map<_, _> = declared.map(|(name, value)| (name.clone(), value.clone())).collect();
    conf.remove("capabilities");
    if !args.is_empty() {
        conf.insert("runtimeConfig".to_owned(), Value::Object(args));
    }
    conf.remove("cniVersions");
    conf.insert("name".to_owned(), network.into());
    conf.insert("cniVersion".to_owned(), version.as_str().into());
    if let Some(prev) = prev {
        conf.insert("prevResult".to_owned(), prev.clone());
    }
    conf
}

/// The first directory that has the plugin wins, whether or not it can be run: a broken plugin is not passed over.
pub(super) fn find(kind: &str, dirs: &[PathBuf]) -> Result<PathBuf, PluginError> {
    let found = dirs.iter().map(|dir| dir.join(kind)).find(|path| path.is_file());
    found.ok_or_else(|| PluginError::Absent { dirs: dirs.to_vec() })
}

/// Whether there is the plugin, and it would be started.
pub(super) fn is_installed(kind: &str, dirs: &[PathBuf], allowed: &Allowed) -> Result<(), PluginError> {
    let denied = allowed.denies(&find(kind, dirs)?);
    denied.map_or(Ok(()), |denied| Err(PluginError::Run(Run(ExecError::Denied(denied)))))
}

fn answer(command: Command, output: &Output) -> Result<Option<Value>, PluginError> {
    let parsed = serde_json::from_slice::<Value>(&output.stdout).ok();
    let reported = parsed.as_ref().and_then(report);
    if let Some(report) = reported {
        // Some scripts tell an error and forget the exit code.
        return Err(PluginError::Reported(report));
    }
    let stdout = excerpt(&output.stdout);
    let stderr = excerpt(&output.stderr);
    if !output.status.success() {
        return Err(PluginError::Failed { status: output.status, stdout, stderr });
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match parsed {
        Some(value @ Value::Object(_)) => Ok(Some(value)),
        // Nobody reads what is written at these.
        _ if !matches!(command, Command::Add | Command::Version) => Ok(None),
        _ => Err(PluginError::Junk { expected: command.expects(), stdout, stderr }),
    }
}

impl PluginError {
    /// Success without the answer that it should come with.
    pub(super) fn silent(command: Command) -> Self {
        Self::Junk { expected: command.expects(), stdout: String::new(), stderr: String::new() }
    }

    /// Whether the plugin was not even started.
    pub(super) const fn is_not_begun(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Run(Run(ExecError::Start(_) | ExecError::Denied(_))))
    }

    /// Whether it was killed before it was told what to do.
    pub(super) const fn is_withheld(&self) -> bool {
        matches!(self, Self::Run(Run(ExecError::Withheld)))
    }

    /// Whether the deadline ended the plugin.
    pub(crate) fn is_deadline(&self) -> bool {
        matches!(self, Self::Run(Run(ExecError::Deadline { .. })))
    }
}

impl Command {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Version => "VERSION",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }

    const fn expects(self) -> &'static str {
        match self {
            Self::Add => "result",
            Self::Del | Self::Check | Self::Status | Self::Gc => "answer",
            Self::Version => "list of versions",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads an error object. `cniVersion` is not asked for: the reference plugins leave it out.
fn report(value: &Value) -> Option<Report> {
    #[derive(Deserialize)]
    struct Wire {
        code: u64,
        #[serde(default)]
        msg: String,
        #[serde(default)]
        details: String,
    }
    // serde would take a list for a struct.
    let wire = value.is_object().then(|| Wire::deserialize(value).ok()).flatten().filter(|wire| wire.code != 0)?;
    Some(Report { code: wire.code, msg: excerpt(wire.msg.as_bytes()), details: excerpt(wire.details.as_bytes()) })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}", self.code)?;
        let meaning = match self.code {
            1 => "incompatible CNI version",
            2 => "unsupported field in the configuration",
            3 => "container unknown",
            4 => "invalid environment",
            5 => "input or output failure",
            6 => "undecodable content",
            7 => "invalid network configuration",
            11 => "try again later",
            50 => "not available",
            51 => "not available, limited connectivity",
            _ => "",
        };
        if !meaning.is_empty() {
            write!(f, " ({meaning})")?;
        }
        for text in [&self.msg, &self.details] {
            if !text.is_empty() {
                write!(f, ": {text}")?;
            }
        }
        if self.code == 1 {
            f.write_str("; change `cniVersion` of the network, or install another release of the plugin")?;
        }
        Ok(())
    }
}

/// The end of a text that a stranger wrote, on one line.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(MAX_EXCERPT);
    text.chars().skip(skip).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn said(stdout: &str, stderr: &str) -> String {
    let part = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("; {name}: `{text}`") };
    format!("{}{}", part("stdout", stdout), part("stderr", stderr))
}

fn list(dirs: &[PathBuf]) -> String {
    let dirs: Vec<_> = dirs.iter().map(|dir: &PathBuf| Path::display(dir).to_string()).collect();
    dirs.join(", ")
}
