//! The kinds of sessions that come of CRI's calls: a table with the path and the protocols of each.

use super::protocol::{COMMAND, FORWARD, Protocol};
use crate::request::{AttachRequest, ExecRequest, PortForwardRequest};

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

/// What a session is joined to.
#[derive(Debug)]
pub(super) enum Command {
    Attach(AttachRequest),
    Exec(ExecRequest),
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

    /// The container or pod that the session is of.
    pub(super) fn of(&self) -> &str {
        match self {
            Self::Command(
                Command::Attach(AttachRequest { container_id, .. }) | Command::Exec(ExecRequest { container_id, .. }),
            ) => container_id,
            Self::PortForward(request) => &request.pod_id,
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
            Self::Command(Command::Exec(ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, .. })) => {
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
