//! What is said.

/// One message, and whom it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Of the connection.
    pub epoch: u64,
    /// The session, 0 for [`Message::Hello`].
    pub session: u32,
    /// What is said.
    pub message: Message,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Both: begins an epoch.
    Hello {
        /// What the sender speaks.
        version: u16,
    },
    /// To the agent: starts a process.
    Start(Start),
    /// To the agent: input of the process.
    Stdin(Vec<u8>),
    /// To the agent: there is no more input.
    StdinEnd,
    /// Both: this much of a stream has been taken out.
    Credit {
        /// Which one.
        stream: Stream,
        /// How much.
        bytes: u32,
    },
    /// To the agent: the terminal has another size.
    Resize(Size),
    /// To the agent: sends the process group a signal.
    Signal(u8),
    /// To the agent: kills the process and its descendants.
    Cancel,
    /// To the agent: how the guest is to be. What of it is done already is not done again.
    Setup(Setup),
    /// To the agent: the session is a client of the machine's command from now on.
    Attach,
    /// To the agent: ends the machine's command, if it runs, and then powers the guest off.
    Stop,
    /// To the agent: its guest's boot may go on. One that does not wait goes on anyway.
    GoOn,
    /// From the agent: its guest's boot waits at the gate, and nothing has read the seed.
    Waits,
    /// From the agent: what a [`Message::Setup`] asked for is done but for this, a line each.
    Ready(String),
    /// From the agent: the process runs.
    Started {
        /// Its id in the guest.
        pid: u32,
    },
    /// From the agent: the process could not be started; why.
    Refused(String),
    /// From the agent: output; all output of a process with a terminal.
    Stdout(Vec<u8>),
    /// From the agent: output of errors.
    Stderr(Vec<u8>),
    /// From the agent: the process has ended and its output was sent.
    Exited {
        /// Its exit code; 128 and the signal's number if a signal ended it.
        code: u8,
    },
}

/// A process that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables beside the agent's own defaults, as `NAME=value`.
    pub env: Vec<String>,
    /// Directory; the user's home if empty.
    pub cwd: String,
    /// `user`, `uid`, `user:group` or `uid:gid`; root if empty.
    pub user: String,
    /// Groups beside the user's own.
    pub groups: Vec<u32>,
    /// Whether it gets a terminal, of this size.
    pub tty: Option<Size>,
    /// Whether it gets input; else its standard input is empty.
    pub stdin: bool,
}

/// How a guest is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Settings of its kernel, as `name=value`.
    pub sysctls: Vec<String>,
    /// The command that the machine is for.
    pub main: Option<Main>,
    /// What of the share [`super::SHARE_TAG`] is seen where. The command does not start unless all of it is.
    pub mounts: Vec<Mount>,
    /// Options of the guest's resolver as resolv.conf(5) names them, such as `ndots:5`.
    pub resolver: Vec<String>,
    /// Disks that the pod has at paths of its own. The command does not start unless all of them are there.
    pub disks: Vec<Disk>,
}

/// A disk, found by its serial and seen at a path of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// As the machine's hardware tells it.
    pub serial: String,
    /// Where the guest sees it, absolute.
    pub path: String,
    /// The file system on it, which is mounted there, or [`super::ANY_FILE_SYSTEM`]; empty if there is to be a link to the disk.
    pub file_system: String,
    /// Whether the guest may only read it.
    pub read_only: bool,
    /// The number of the partition that has the file system; 0 is the whole disk.
    pub partition: u16,
    /// What its mount has beside; nothing for a link.
    pub options: MountOptions,
}

/// An entry of the share, seen at a path of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// The entry's name in the share's root: a directory or a file.
    pub entry: u16,
    /// Where it is seen, absolute.
    pub path: String,
    /// Whether the guest may only read it.
    pub read_only: bool,
    /// What its mount has beside.
    pub options: MountOptions,
}

/// What a mount forbids beside writing, as mount(8) names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// No program on it starts.
    pub noexec: bool,
    /// Device nodes on it are none.
    pub nodev: bool,
    /// No program on it has rights of its file's owner or group, or of capabilities.
    pub nosuid: bool,
}

/// The command that a machine is for: its output goes to the port [`super::LOG_PORT`], and when it ends its exit code
/// goes to the port [`super::EXIT_PORT`] and the guest powers off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Main {
    /// How it is started. One that gets input gets it from those who attach.
    pub start: Start,
    /// Whether the guest's root file system is read-only to it.
    pub read_only_root: bool,
    /// The signal that ends it.
    pub stop_signal: u8,
}

/// A stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "known to everybody")]
pub enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

impl Stream {
    /// What a process writes.
    pub const OUTPUTS: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}
