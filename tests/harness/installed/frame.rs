//! What a machine keeps from boot to boot: an emulator is started for each, and ends with it.
//!
//! So a machine that reboots by itself is told from one that was asked to, and each boot has logs of its own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::wire::Word;
use crate::case::log_dir;
use crate::command::{command, finish};
use crate::emulated::{EMULATED, PERIODIC};
use crate::pace::{self, Deadline};
use crate::wait::wait_for;

/// Where the machine has this one's files.
pub const HOST: &str = "/host";
/// 40 s on a quiet machine.
pub(super) const BOOT_DEADLINE: Duration = Duration::from_secs(480);
const TOOL_DEADLINE: Duration = Duration::from_secs(180);
/// The kernel's words.
const KERNEL: &[&str] = &[
    EMULATED,
    "apparmor=1 security=apparmor",
    PERIODIC,
    // Each denial of AppArmor's is in the kernel's log, which takes ten lines in five seconds otherwise, audit's on all changes of rules
    // included.
    "sysctl.kernel.printk_ratelimit=0",
    // What happens in there is in the log of a failed case.
    "systemd.journald.forward_to_console=1 systemd.show_status=0",
];
/// What the machine is made of, beside what has a file of ours. One that is saved goes on with the same words alone.
const HARDWARE: &[&str] = &[
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-machine",
    "q35",
    // With two, one machine in some five was reset while a nested guest ran; with one, none.
    "-smp",
    "1",
    "-m",
    "2048",
    "-accel",
    "tcg,thread=multi",
    // TCG emulates AMD's virtualization, so guests in there run under KVM.
    "-cpu",
    "qemu64,+svm,+npt,+ssse3,+sse4.1,+sse4.2,+popcnt",
    "-no-reboot",
    "-virtfs",
    "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
    "-device",
    "virtio-serial-pci",
    "-device",
    "virtserialport,chardev=agent,name=bed",
    "-device",
    "virtio-net-pci,netdev=card",
];

/// A machine that is off.
#[derive(Debug)]
pub(super) struct Frame {
    /// With kernel and initrd.
    image: PathBuf,
    dir: PathBuf,
    /// The other end of its card, if that leads anywhere.
    tap: Option<String>,
    /// How often it was started.
    boots: u32,
}

/// One boot.
#[derive(Debug)]
pub(super) struct Running {
    emulator: Emulator,
    pub(super) wire: UnixStream,
    words: Receiver<Word>,
}

/// QEMU; it ends when this is dropped.
#[derive(Debug)]
struct Emulator(Child);

/// All that a saved machine depends on, besides its image.
pub(super) fn made_of() -> Result<String> {
    let version = finish(&mut command("qemu-system-x86_64", ["--version"]), TOOL_DEADLINE)?.stdout;
    Ok([&[version.as_str()], KERNEL, HARDWARE].concat().join(" "))
}

impl Frame {
    /// A machine with `base` for its disk, which it leaves as it is; all that it makes is in `dir`.
    pub(super) fn over(base: &Path, image: &Path, dir: &Path, tap: Option<&str>) -> Result<Self> {
        fs::create_dir_all(log_dir(dir))?;
        let frame = Self { image: image.to_owned(), dir: dir.to_owned(), tap: tap.map(str::to_owned), boots: 0 };
        let create = ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"];
        let made = finish(command("qemu-img", create).arg(base).arg(frame.disk()), TOOL_DEADLINE)?;
        ensure!(made.code == Some(0), "no overlay: {}", made.stderr);
        Ok(frame)
    }

    pub(super) fn boots(&self) -> u32 {
        self.boots
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.dir.join("installed.qcow2")
    }

    /// Of QEMU's own, in JSON.
    pub(super) fn monitor(&self) -> PathBuf {
        self.dir.join("installed.qmp")
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("installed.sock")
    }

    /// Boots, and waits until it runs what it is told.
    pub(super) fn boot(&mut self) -> Result<Running> {
        let mut running = self.boot_idle()?;
        running.put_to_work()?;
        Ok(running)
    }

    /// Boots, and leaves it at that: it knows nothing of this machine yet.
    pub(super) fn boot_idle(&mut self) -> Result<Running> {
        let running = self.start(&[])?;
        running.expect(&Word::Booted)?;
        Ok(running)
    }

    /// Goes on with what `memory` holds, and waits until it runs what it is told.
    pub(super) fn resume(&mut self, memory: &Path) -> Result<Running> {
        let mut running = self.start(&["-incoming".to_owned(), format!("file:{}", memory.display())])?;
        running.put_to_work()?;
        Ok(running)
    }

    fn start(&mut self, more: &[String]) -> Result<Running> {
        self.boots += 1;
        let socket = self.socket();
        // Of the boot before.
        let _none = fs::remove_file(&socket);
        let emulator = Emulator(self.emulator()?.args(more).spawn().context("failed to start QEMU")?);
        let wire = wait_for("socket of the machine", BOOT_DEADLINE, || Ok(UnixStream::connect(&socket).ok()))?;
        let lines = BufReader::new(wire.try_clone()?);
        let (sender, words) = mpsc::channel();
        std::thread::spawn(move || {
            let words = lines.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            // Nobody: the boot or the case has ended.
            let _nobody = words.map(|word| sender.send(word)).find(Result::is_err);
        });
        Ok(Running { emulator, wire, words })
    }

    fn emulator(&self) -> Result<Command> {
        let card = match &self.tap {
            // As without it no header stands before its frames: a saved card goes on with either.
            Some(tap) => format!("tap,id=card,ifname={tap},vnet_hdr=off,script=no,downscript=no"),
            None => "hubport,id=card,hubid=0".to_owned(),
        };
        let mut command = Command::new("qemu-system-x86_64");
        command
            .arg("-chardev")
            .arg(format!("socket,id=agent,path={},server=on,wait=off", self.socket().display()))
            .args(["-netdev", &card])
            .args(HARDWARE)
            // Why a processor was reset, should it be.
            .args(["-d", "cpu_reset", "-D"])
            .arg(self.log("resets"))
            .arg("-kernel")
            .arg(self.image.join("vmlinux"))
            .arg("-initrd")
            .arg(self.image.join("initrd"))
            .args(["-append", &KERNEL.join(" ")])
            .arg("-serial")
            .arg(format!("file:{}", self.log("console").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", self.monitor().display()))
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=qcow2,cache=unsafe", self.disk().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.log("emulator"))?);
        Ok(command)
    }

    /// A file of this boot's.
    fn log(&self, what: &str) -> PathBuf {
        log_dir(&self.dir).join(format!("{what}-{}.log", self.boots))
    }
}

impl Running {
    /// What the machine says next; nothing if it is silent for that long.
    ///
    /// # Errors
    /// When it ended by itself.
    pub(super) fn word(&self, deadline: Duration) -> Result<Option<Word>> {
        match pace::receive(&self.words, Deadline::within(deadline)) {
            Ok(word) => Ok(Some(word)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the machine ended by itself")),
        }
    }

    pub(super) fn expect(&self, word: &Word) -> Result<()> {
        match self.word(BOOT_DEADLINE)? {
            Some(said) if said == *word => Ok(()),
            Some(said) => bail!("the machine says {said:?}, and not {word:?}"),
            None => bail!("the machine does not say {word:?} within {} s", BOOT_DEADLINE.as_secs()),
        }
    }

    /// Has it start this program in there, which says so.
    fn put_to_work(&mut self) -> Result<()> {
        let bed_itself = std::env::current_exe()?.canonicalize()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        self.tell(&format!("run {now} {HOST}{}", bed_itself.display()))?;
        self.expect(&Word::Up)
    }

    /// A word to its first hand (`tests/guests/installed-root`).
    pub(super) fn tell(&mut self, order: &str) -> Result<()> {
        self.wire.write_all(format!("{order}\n").as_bytes()).context("the machine does not listen")
    }

    /// Waits until it has ended.
    pub(super) fn end(&mut self, deadline: Duration) -> Result<()> {
        let ended = wait_for("end of the machine's boot", deadline, || Ok(self.emulator.0.try_wait()?))?;
        ensure!(ended.success(), "the emulator ended with {ended}");
        Ok(())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it is gone.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}
