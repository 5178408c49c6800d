//! The emulated node: a machine with Debian's kernel, for what the kernel of the bed's own machine lacks.
//!
//! [`crate::runner`] boots it when the first case of tier `node` wants it, and sends it cases by name over a
//! virtio-serial port, one JSON message a line; in there this same program (`bed node-agent`) runs each in a cell, as
//! the runner does outside, and answers with what failed. The machine's root file system is this machine's, read-only
//! (see `tests/guests/build-node.sh`), so there is no second set of tools and nothing to copy. The node ends with the
//! run: nothing in it outlives its memory.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::case::Case;
use crate::config::Config;
use crate::wait::wait_for;

/// Names of the cases that run in the node start so.
pub const TIER: &str = "node::";

/// 4 s on a quiet machine.
const BOOT_DEADLINE: Duration = Duration::from_secs(120);
/// What the node may take on top of a case's own deadline: to kill it, clean up, and say so.
const GRACE: Duration = Duration::from_secs(60);
/// Where the node has this machine's files, those under `/tmp` too.
const SHARE: &str = "/host";
/// The node has one port.
const PORTS: &str = "/sys/class/virtio-ports";
/// Of the root of its cgroups.
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
const PORT_DEADLINE: Duration = Duration::from_secs(20);
/// Lines of the node's console that are shown when it ended.
const TAIL: usize = 40;

/// A node that is booted when it is first asked for.
#[derive(Debug, Default)]
pub struct OnDemand(OnceLock<Result<Node, String>>);

impl OnDemand {
    /// Runs `case` in the node.
    ///
    /// # Errors
    /// What the case fails with, and when there is no node or it ended.
    pub fn run(&self, case: &Case) -> Result<()> {
        let node = self.0.get_or_init(|| Node::boot(&Config::from_env()).map_err(|failed| format!("{failed:#}")));
        node.as_ref().map_err(|failed| anyhow!("no emulated node: {failed}"))?.run(case)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    case: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    case: String,
    failed: Option<String>,
}

#[derive(Debug)]
struct Node {
    emulator: Child,
    wire: Mutex<UnixStream>,
    waiting: Arc<Waiting>,
    reader: Option<JoinHandle<()>>,
    dir: TempDir,
}

/// Who waits for the outcome of which case; `None` once the node ended.
#[derive(Debug)]
struct Waiting(Mutex<Option<HashMap<String, Sender<Outcome>>>>);

impl Node {
    fn boot(config: &Config) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("vt-node-").tempdir_in("/tmp")?;
        let socket = dir.path().join("agent");
        let mut emulator = emulator(config, dir.path())?.spawn().context("failed to start QEMU")?;
        let wire = wait_for("socket of the node", BOOT_DEADLINE, || Ok(UnixStream::connect(&socket).ok()));
        let waiting = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let wire = match wire {
            Ok(wire) => wire,
            Err(failed) => {
                emulator.kill()?;
                emulator.wait()?;
                return Err(failed);
            }
        };
        let (lines, all) = (BufReader::new(wire.try_clone()?), Arc::clone(&waiting));
        let (ready, up) = mpsc::channel();
        waiting.expect(READY, ready)?;
        let reader = std::thread::spawn(move || {
            // An error ends the node as its end does.
            let outcomes = lines.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            outcomes.for_each(|outcome| all.told(outcome));
            all.end();
        });
        let node = Self { emulator, wire: Mutex::new(wire), waiting, reader: Some(reader), dir };
        match up.recv_timeout(BOOT_DEADLINE) {
            Ok(_) => Ok(node),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended while it booted:\n{}", node.console()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("not up within {} s:\n{}", BOOT_DEADLINE.as_secs(), node.console())
            }
        }
    }

    fn run(&self, case: &Case) -> Result<()> {
        let (sender, outcome) = mpsc::channel();
        self.waiting.expect(case.name, sender).with_context(|| self.console())?;
        send(&mut *locked(&self.wire), &Order { case: case.name.to_owned() })?;
        match outcome.recv_timeout(case.deadline + GRACE) {
            Ok(Outcome { failed: None, .. }) => Ok(()),
            Ok(Outcome { failed: Some(failed), .. }) => bail!("in the node: {failed}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the node ended:\n{}", self.console()),
            Err(RecvTimeoutError::Timeout) => bail!("the node is silent:\n{}", self.console()),
        }
    }

    fn console(&self) -> String {
        let text = fs::read(console(self.dir.path())).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing in it is worth a farewell. Both fail only if it is gone.
        let _gone = self.emulator.kill();
        let _gone = self.emulator.wait();
        if let Some(reader) = self.reader.take() {
            let _panicked = reader.join();
        }
    }
}

impl Waiting {
    fn expect(&self, case: &str, sender: Sender<Outcome>) -> Result<()> {
        locked(&self.0).as_mut().context("the node ended")?.insert(case.to_owned(), sender);
        Ok(())
    }

    fn told(&self, outcome: Outcome) {
        let sender = locked(&self.0).as_mut().and_then(|waiting| waiting.remove(&outcome.case));
        // Nobody: whoever asked gave up.
        let _nobody = sender.map(|sender| sender.send(outcome));
    }

    /// Drops the senders, by which their receivers know.
    fn end(&self) {
        locked(&self.0).take();
    }
}

/// The name of no case, in the first message of the node.
const READY: &str = "";

fn emulator(config: &Config, dir: &Path) -> Result<Command> {
    let shared = |path: &Path| -> Result<String> {
        let path = path.canonicalize().with_context(|| format!("no `{}`", path.display()))?;
        Ok(format!("{SHARE}{}", path.display()))
    };
    let node = config.guest("node")?.canonicalize()?;
    let mut words = vec![
        // Words with a `=` that the kernel does not know become the environment of its first process.
        "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests".to_owned(),
        format!("modules={}", node.join("modules").display()),
        format!("bed={}", shared(&std::env::current_exe()?)?),
    ];
    for (name, path) in config.places()? {
        words.push(format!("{name}={}", shared(&path)?));
    }
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        // Nehalem: newer models cost TCG 7 to 20 %
        .args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", "1024"])
        .arg("-kernel")
        .arg(node.join("vmlinux"))
        .arg("-initrd")
        .arg(node.join("initrd"))
        .arg("-append")
        .arg(words.join(" "))
        .arg("-serial")
        .arg(format!("file:{}", console(dir).display()))
        .args(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"])
        .arg("-chardev")
        .arg(format!("socket,id=agent,path={},server=on,wait=off", dir.join("agent").display()))
        .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=bed"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(command)
}

fn console(dir: &Path) -> PathBuf {
    dir.join("console")
}

/// `bed node-agent`, in the node: runs what it is told to by `run`, as much at a time as it is told.
///
/// # Errors
/// When there is no wire, or it breaks.
pub fn serve(run: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    // The driver adds its ports when the device has told it of them, and numbers them by device.
    let name = wait_for("virtio-serial port", PORT_DEADLINE, || {
        Ok(fs::read_dir(PORTS)?.next().transpose()?.map(|entry| entry.file_name()))
    })?;
    // A cell has the controllers that its parent passes on.
    fs::write(CONTROLLERS, "+cpu +cpuset +io +memory +pids").context("the node has no cgroups of version 2")?;
    let reads = OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(name))?;
    let writes = Mutex::new(reads.try_clone()?);
    let say = |outcome: &Outcome| send(&mut *locked::<File>(&writes), outcome);
    say(&Outcome { case: READY.to_owned(), failed: None })?;
    std::thread::scope(|scope| {
        for line in BufReader::new(reads).lines() {
            let Order { case } = serde_json::from_str(&line?)?;
            let (say, run) = (&say, &run);
            scope.spawn(move || {
                let failed = run(&case).err().map(|failed| format!("{failed:#}"));
                say(&Outcome { case, failed })
            });
        }
        Ok(())
    })
}

fn send(wire: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    wire.write_all(&line).context("the wire between bed and node is broken")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
