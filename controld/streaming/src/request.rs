//! What CRI's calls Attach, Exec and PortForward ask for.

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
    /// What CRI's call cannot say.
    pub otherwise: Otherwise,
}

/// How a command is to run otherwise than its container says. What is empty is as there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Otherwise {
    /// `NAME=VALUE`, beside the container's variables or in place of them.
    pub env: Vec<String>,
    pub working_dir: String,
    pub user: String,
}

/// What a client of CRI wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForwardRequest {
    pub pod_id: String,
    /// The ports, for clients that do not name them again at each connection.
    pub ports: Vec<u16>,
}
