//! The machine, from without.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::wire::{Order, Word, send};
use crate::case::Bed;
use crate::command::{command, finish};
use crate::cost::{Wait, spent};
use crate::emulated::PERIODIC;
use crate::wait::wait_for;

/// Where the machine has this one's files.
pub const HOST: &str = "/host";
/// 40 s on a quiet machine.
const BOOT_DEADLINE: Duration = Duration::from_secs(480);
const TOOL_DEADLINE: Duration = Duration::from_secs(180);
/// Its services end, pods of kubelet's among them.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(240);

/// Which Debian a machine has.
#[derive(Debug, Clone, Copy)]
pub enum Debian {
    /// With libvirt and QEMU of its backports.
    Twelve,
    /// With its own.
    Thirteen,
}

impl Debian {
    /// The guest builder's name of it.
    const fn guest(self) -> &'static str {
        match self {
            Self::Twelve => "installed",
            Self::Thirteen => "installed-13",
        }
    }
}

/// A booted machine; it ends when this is dropped.
#[derive(Debug)]
pub struct Machine {
    frame: Frame,
    running: Running,
}

/// What a machine keeps from boot to boot: an emulator is started for each, and ends with it.
///
/// So a machine that reboots by itself is told from one that was asked to, and each boot has logs of its own.
#[derive(Debug)]
struct Frame {
    /// With kernel and initrd.
    image: PathBuf,
    disk: PathBuf,
    logs: PathBuf,
    socket: PathBuf,
    /// The other end of its card.
    tap: Option<String>,
    /// How often it was started.
    boots: u32,
}

/// One boot.
#[derive(Debug)]
struct Running {
    emulator: Emulator,
    wire: UnixStream,
    words: Receiver<Word>,
}

/// QEMU; it ends when this is dropped.
#[derive(Debug)]
struct Emulator(Child);

impl Machine {
    /// Boots one from the guest builder's image.
    ///
    /// # Errors
    /// When the image was not built, or the machine does not come up.
    pub fn boot(bed: &Bed, debian: Debian) -> Result<Self> {
        Self::boot_with(bed, debian, None)
    }

    /// [`Machine::boot`] with a card, whose other end is `tap`, a tap of the cell.
    ///
    /// # Errors
    /// When the image was not built, or the machine does not come up.
    pub fn boot_on(bed: &Bed, debian: Debian, tap: &str) -> Result<Self> {
        Self::boot_with(bed, debian, Some(tap))
    }

    fn boot_with(bed: &Bed, debian: Debian, tap: Option<&str>) -> Result<Self> {
        let image = bed.config.guest(debian.guest())?.canonicalize()?;
        let disk = bed.dir.join("installed.qcow2");
        let base = image.join("disk.qcow2");
        let made = finish(
            command("qemu-img", ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"]).arg(&base).arg(&disk),
            TOOL_DEADLINE,
        )?;
        ensure!(made.code == Some(0), "no overlay: {}", made.stderr);
        fs::create_dir_all(bed.logs())?;
        let socket = bed.dir.join("installed.sock");
        let mut frame = Frame { image, disk, logs: bed.logs(), socket, tap: tap.map(str::to_owned), boots: 0 };
        let running = spent(Wait::Node, || frame.start())?;
        Ok(Self { frame, running })
    }

    /// Has it run `script` with bash, and says what that said, on both of its outputs.
    ///
    /// # Errors
    /// When the script fails, or does not end by `deadline`.
    pub fn run(&mut self, script: &str, deadline: Duration) -> Result<String> {
        let (code, said) = self.attempt(script, deadline)?;
        ensure!(code == Some(0), "`{script}` ended with {code:?}: {said}");
        Ok(said)
    }

    /// [`Machine::run`], however the script ends.
    ///
    /// # Errors
    /// When it does not end by `deadline`.
    pub fn attempt(&mut self, script: &str, deadline: Duration) -> Result<(Option<i32>, String)> {
        send(&mut self.running.wire, &Order { script: script.to_owned() })?;
        match self.running.words.recv_timeout(deadline) {
            Ok(Word::Ended { code, said }) => Ok((code, said)),
            Ok(Word::Up) => bail!("the machine booted while `{script}` ran"),
            Err(RecvTimeoutError::Timeout) => bail!("`{script}` runs for more than {} s", deadline.as_secs()),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the machine ended by itself in boot {} while `{script}` ran", self.frame.boots)
            }
        }
    }

    /// Asks `script` again and again until it succeeds, and says what it said then.
    ///
    /// # Errors
    /// When it does not by `deadline`: the error has what it said last.
    pub fn wait(&mut self, what: &str, script: &str, deadline: Duration) -> Result<String> {
        let mut last = String::new();
        let seen = wait_for(what, deadline, || {
            let (code, said) = self.attempt(script, deadline)?;
            last.clone_from(&said);
            Ok((code == Some(0)).then_some(said))
        });
        seen.with_context(|| format!("last: {last}"))
    }

    /// Has it reboot by its own `reboot`, and waits until it is up again.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn reboot(&mut self) -> Result<()> {
        let (code, said) = self.attempt("systemctl --no-block reboot", TOOL_DEADLINE)?;
        ensure!(code == Some(0), "it does not reboot: {said}");
        let emulator = &mut self.running.emulator.0;
        let ended = wait_for("end of the machine's boot", SHUTDOWN_DEADLINE, || Ok(emulator.try_wait()?))?;
        ensure!(ended.success(), "the emulator ended with {ended}");
        self.running = spent(Wait::Node, || self.frame.start())?;
        Ok(())
    }
}

impl Frame {
    /// Boots, and waits until it is up.
    fn start(&mut self) -> Result<Running> {
        self.boots += 1;
        // Of the boot before.
        let _none = fs::remove_file(&self.socket);
        let emulator = Emulator(self.emulator()?.spawn().context("failed to start QEMU")?);
        let wire = wait_for("socket of the machine", BOOT_DEADLINE, || Ok(UnixStream::connect(&self.socket).ok()))?;
        let lines = BufReader::new(wire.try_clone()?);
        let (sender, words) = mpsc::channel();
        std::thread::spawn(move || {
            let words = lines.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            // Nobody: the boot or the case has ended.
            let _nobody = words.map(|word| sender.send(word)).find(Result::is_err);
        });
        match words.recv_timeout(BOOT_DEADLINE) {
            Ok(Word::Up) => Ok(Running { emulator, wire, words }),
            Ok(word) => bail!("the machine says {word:?} before it has booted"),
            Err(RecvTimeoutError::Timeout) => bail!("the machine is not up within {} s", BOOT_DEADLINE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("the machine ended by itself while it booted"),
        }
    }

    fn emulator(&self) -> Result<Command> {
        let bed_itself = std::env::current_exe()?.canonicalize()?;
        let words = [
            "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off cryptomgr.notests apparmor=1 security=apparmor"
                .to_owned(),
            PERIODIC.to_owned(),
            // Each denial of AppArmor's is in the kernel's log, which takes ten lines in five seconds otherwise, audit's on all
            // changes of rules included.
            "sysctl.kernel.printk_ratelimit=0".to_owned(),
            // What happens in there is in the log of a failed case.
            "systemd.journald.forward_to_console=1 systemd.show_status=0".to_owned(),
            format!("systemd.setenv=BED={HOST}{}", bed_itself.display()),
        ];
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
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
            ])
            // TCG emulates AMD's virtualization, so guests in there run under KVM.
            .args(["-accel", "tcg,thread=multi", "-cpu", "qemu64,+svm,+npt,+ssse3,+sse4.1,+sse4.2,+popcnt"])
            .arg("-no-reboot")
            // Why a processor was reset, should it be.
            .args(["-d", "cpu_reset", "-D"])
            .arg(self.log("resets"))
            .arg("-kernel")
            .arg(self.image.join("vmlinux"))
            .arg("-initrd")
            .arg(self.image.join("initrd"))
            .arg("-append")
            .arg(words.join(" "))
            .arg("-serial")
            .arg(format!("file:{}", self.log("console").display()))
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=qcow2,cache=unsafe", self.disk.display()))
            .args(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"])
            .arg("-chardev")
            .arg(format!("socket,id=agent,path={},server=on,wait=off", self.socket.display()))
            .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=bed"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.log("emulator"))?);
        if let Some(tap) = &self.tap {
            command.args(["-netdev", &format!("tap,id=card,ifname={tap},script=no,downscript=no")]);
            command.args(["-device", "virtio-net-pci,netdev=card"]);
        }
        Ok(command)
    }

    /// A file of this boot's.
    fn log(&self, what: &str) -> PathBuf {
        self.logs.join(format!("{what}-{}.log", self.boots))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Nothing in it is worth a farewell. Both fail only if it is gone.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}
