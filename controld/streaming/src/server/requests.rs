//! What CRI's calls ask for, and the kinds of sessions that come of it: a table with the path and the protocols of each.

use super::command::Command;
use super::protocol::{COMMAND, FORWARD, Protocol};

/// What a client of CRI wants to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachRequest {
    pub container_id: String,
    /// Send to it.
    pub stdin: bool,
    /// Receive its output.
    pub stdout: bool,
    /// Receive its errors.
    pub stderr: bool,
    /// The client has a terminal.
    pub tty: bool,
    /// The session ends when the client's input does.
    pub stdin_once: bool,
}

/// What a client of CRI wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    pub container_id: String,
    /// The command and its arguments.
    pub cmd: Vec<String>,
    /// Send to it.
    pub stdin: bool,
    /// Receive its output.
    pub stdout: bool,
    /// Receive its errors.
    pub stderr: bool,
    /// The command runs on a terminal.
    pub tty: bool,
}

/// What a client of CRI wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForwardRequest {
    pub pod_id: String,
    /// The ports, for clients that do not name them again at each connection.
    pub ports: Vec<u16>,
}

/// Why there is no URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The request names no container.
    #[error("{0} request names no container")]
    NoContainer(&'static str),
    /// The request names no pod.
    #[error("port-forward request names no pod")]
    NoPod,
    /// The request wants no stream.
    #[error("{0} request wants none of stdin, stdout and stderr")]
    NoStream(&'static str),
    /// A terminal has no stderr.
    #[error("{0} request wants stderr of a terminal, which has none; unset tty or stderr")]
    TtyWithStderr(&'static str),
    /// The request names no command.
    #[error("exec request names no command")]
    NoCommand,
    /// Too many URLs wait for their clients.
    #[error("{0} streaming URLs are waiting for their clients; try again in a minute")]
    TooMany(usize),
}

/// A kind of session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Attach,
    Exec,
    PortForward,
}

/// What a token stands for.
#[derive(Debug)]
pub(super) enum Pending {
    Command(Command),
    PortForward(PortForwardRequest),
}

// === impl Kind ===

impl Kind {
    const ALL: [Self; 3] = [Self::Attach, Self::Exec, Self::PortForward];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Exec => "exec",
            Self::PortForward => "portforward",
        }
    }

    pub(super) fn protocols(self) -> &'static [Protocol] {
        match self {
            Self::Attach | Self::Exec => COMMAND,
            Self::PortForward => FORWARD,
        }
    }

    /// The kind and the token of a URL's path.
    pub(super) fn of_path(path: &str) -> Option<(Self, &str)> {
        let (name, token) = path.strip_prefix('/')?.split_once('/')?;
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some((kind, token))
    }
}

// === impl Pending ===

impl Pending {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Command(Command::Attach(_)) => Kind::Attach,
            Self::Command(Command::Exec(_)) => Kind::Exec,
            Self::PortForward(_) => Kind::PortForward,
        }
    }

    /// How many ports a request for port-forward names.
    pub(super) fn ports(&self) -> Option<usize> {
        match self {
            Self::PortForward(request) => Some(request.ports.len()),
            Self::Command(_) => None,
        }
    }

    /// Whether the request makes sense.
    pub(super) fn check(&self) -> Result<(), UrlError> {
        let name = self.kind().name();
        let (container_id, any, tty_with_stderr) = match self {
            Self::Command(Command::Attach(AttachRequest { container_id, stdin, stdout, stderr, tty, .. })) => {
                (container_id, *stdin || *stdout || *stderr, *tty && *stderr)
            }
            Self::Command(Command::Exec(ExecRequest { container_id, cmd, stdin, stdout, stderr, tty })) => {
                if cmd.is_empty() {
                    return Err(UrlError::NoCommand);
                }
                (container_id, *stdin || *stdout || *stderr, *tty && *stderr)
            }
            Self::PortForward(request) => {
                return if request.pod_id.is_empty() { Err(UrlError::NoPod) } else { Ok(()) };
            }
        };
        if container_id.is_empty() {
            return Err(UrlError::NoContainer(name));
        }
        if !any {
            return Err(UrlError::NoStream(name));
        }
        if tty_with_stderr {
            return Err(UrlError::TtyWithStderr(name));
        }
        Ok(())
    }
}
