//! The environment that `controld` writes into a domain, as typed values. Pure: `main` passes the variables in.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::tap::Token;

const PREFIX: &[u8] = b"VIRTLET_";
const HANDOFF: &str = "VIRTLET_HANDOFF";
const TOKEN: &str = "VIRTLET_TOKEN";
const EMULATOR: &str = "VIRTLET_EMULATOR";
const NICS: &str = "VIRTLET_NICS";
const NIC_BUS: &str = "VIRTLET_NIC_BUS";
const DEADLINE: &str = "VIRTLET_DEADLINE_MS";

/// libvirt waits for its emulator without end, so this program may not.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
const MAX_DEADLINE_MS: u64 = 600_000;
/// `sizeof(sun_path)` less its NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Why the program was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// libvirt asks the emulator what it can do.
    Probe,
    /// libvirt starts a pod's machine.
    Pod(Pod),
}

/// What `controld` says about the start of a pod's machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    /// tapmanager's hand-off socket.
    pub(crate) handoff: PathBuf,
    /// Key to the pod's descriptors.
    pub(crate) token: Token,
    /// The real QEMU; absolute.
    pub(crate) emulator: PathBuf,
    /// Where the pod's NICs go, in their order; at least one, none twice.
    pub(crate) places: Vec<Place>,
    /// The bus that they are on.
    pub(crate) bus: PciBus,
    /// How long the hand-off may take.
    pub(crate) deadline: Duration,
    /// Names of all variables that are ours, known or not: QEMU sees none of them.
    pub(crate) variables: Vec<OsString>,
}

/// QEMU's name of the bus of a chipset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PciBus {
    /// Of q35, and of machines that an earlier release of `controld` describes.
    #[default]
    Pcie,
    /// Of i440fx.
    Pci,
}

/// Where a NIC goes, and what its guest is told of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: PciSlot,
    /// Its place among what the firmware tries.
    pub(crate) boot: Option<u16>,
    /// Its number in ACPI.
    pub(crate) acpi_index: Option<u16>,
}

/// A slot of the bus that `controld` leaves free for this program's NICs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PciSlot(u8);

/// Why the environment was refused. Never holds the token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvError {
    #[error("variable `{0}` is missing")]
    Missing(&'static str),
    #[error("variable `{name}` {problem}")]
    Malformed { name: &'static str, problem: &'static str },
    #[error("variable `{NICS}`: `{slot}` {problem}")]
    Slot { slot: String, problem: &'static str },
}

/// What the environment asks for.
///
/// # Errors
/// A variable that is missing or malformed. Some of our variables without a token are an error too: a pod's machine
/// would start without its network, and nobody would hear of it.
pub(crate) fn parse(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Mode, EnvError> {
    let ours: Vec<(OsString, OsString)> =
        environment.into_iter().filter(|(name, _)| name.as_bytes().starts_with(PREFIX)).collect();
    if ours.is_empty() {
        return Ok(Mode::Probe);
    }
    // The first of a name counts, as for getenv(3).
    let find = |wanted: &'static str| ours.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_os_str());
    let need = |wanted| find(wanted).ok_or(EnvError::Missing(wanted));
    Ok(Mode::Pod(Pod {
        token: token(need(TOKEN)?)?,
        handoff: socket(need(HANDOFF)?)?,
        emulator: absolute(EMULATOR, need(EMULATOR)?)?,
        places: places(need(NICS)?)?,
        bus: find(NIC_BUS).map_or(Ok(PciBus::default()), bus)?,
        deadline: find(DEADLINE).map_or(Ok(DEFAULT_DEADLINE), deadline)?,
        variables: ours.iter().map(|(name, _)| name.clone()).collect(),
    }))
}

fn token(value: &OsStr) -> Result<Token, EnvError> {
    let problem = "is not 32 lower-case hex digits";
    text(TOKEN, value)?.parse().map_err(|_| EnvError::Malformed { name: TOKEN, problem })
}

fn socket(value: &OsStr) -> Result<PathBuf, EnvError> {
    if value.len() > MAX_SOCKET_PATH {
        return Err(EnvError::Malformed { name: HANDOFF, problem: "is longer than the path of a socket may be" });
    }
    absolute(HANDOFF, value)
}

fn absolute(name: &'static str, value: &OsStr) -> Result<PathBuf, EnvError> {
    let path = Path::new(value);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(EnvError::Malformed { name, problem: "is not an absolute path" })
}

/// `0x10`, or `0x10/boot=2/index=7`, for each NIC.
fn places(value: &OsStr) -> Result<Vec<Place>, EnvError> {
    let mut places: Vec<Place> = Vec::new();
    for part in text(NICS, value)?.split(',') {
        let refuse = |problem| EnvError::Slot { slot: part.chars().take(32).collect(), problem };
        let mut words = part.split('/');
        let slot = words.next().and_then(PciSlot::parse).ok_or_else(|| refuse("is not a slot from 0x10 to 0x1e"))?;
        let mut place = Place { slot, boot: None, acpi_index: None };
        for word in words {
            let number = |number: &str| number.parse::<u16>().ok().filter(|number| *number > 0);
            let (said, value) = match word.split_once('=') {
                Some(("boot", value)) => (&mut place.boot, number(value)),
                Some(("index", value)) => (&mut place.acpi_index, number(value)),
                _ => return Err(refuse("says something else than `boot` and `index`")),
            };
            let is_new = said.is_none();
            *said = Some(value.filter(|_| is_new).ok_or_else(|| refuse("has a number that is none, or two of them"))?);
        }
        if places.iter().any(|other| other.slot == slot) {
            return Err(refuse("stands there twice"));
        }
        places.push(place);
    }
    Ok(places)
}

fn bus(value: &OsStr) -> Result<PciBus, EnvError> {
    match text(NIC_BUS, value)? {
        "pcie.0" => Ok(PciBus::Pcie),
        "pci.0" => Ok(PciBus::Pci),
        _ => Err(EnvError::Malformed { name: NIC_BUS, problem: "is not `pcie.0` or `pci.0`" }),
    }
}

fn deadline(value: &OsStr) -> Result<Duration, EnvError> {
    let millis = text(DEADLINE, value)?.parse().ok().filter(|millis| (1..=MAX_DEADLINE_MS).contains(millis));
    let problem = "is not a number of milliseconds from 1 to 600000";
    millis.map(Duration::from_millis).ok_or(EnvError::Malformed { name: DEADLINE, problem })
}

fn text<'a>(name: &'static str, value: &'a OsStr) -> Result<&'a str, EnvError> {
    value.to_str().ok_or(EnvError::Malformed { name, problem: "is not text" })
}

// === impl PciBus ===

impl fmt::Display for PciBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcie => "pcie.0",
            Self::Pci => "pci.0",
        })
    }
}

// === impl PciSlot ===

impl PciSlot {
    /// `0x10` to `0x1e`; the rest of the bus is libvirt's.
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2)?;
        let slot = u8::from_str_radix(digits, 16).ok()?;
        (0x10..=0x1e).contains(&slot).then_some(Self(slot))
    }
}

impl fmt::Display for PciSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

#[cfg(test)]
impl Place {
    pub(crate) fn at(slot: &str) -> Self {
        Self { slot: PciSlot::parse(slot).expect("slot"), boot: None, acpi_index: None }
    }
}

#[cfg(test)]
mod tests;
