//! What libvirt's numbers and texts mean to us. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proto::pause::Pause;
use proto::tap::QemuUser;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use uuid::Uuid;
use virt_sys as sys;

use super::Ending;
use super::ffi::{RawEvent, RawState};
use super::{DomainPhase, DomainState, WrapperError};

/// Finds in lifecycle events how machines end.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Machines whose QEMU was told to go by a signal, not by their guest. libvirt says so only in the event before the
    /// last, and then calls it a shutdown.
    signalled: BTreeSet<Uuid>,
}

impl Endings {
    /// How a machine ended, if that is what the event says.
    pub(super) fn of(&mut self, RawEvent { id, event, detail }: RawEvent) -> Option<Ending> {
        let (event, detail) = (u32::try_from(event).ok()?, u32::try_from(detail).ok()?);
        match (event, detail) {
            (sys::VIR_DOMAIN_EVENT_SHUTDOWN, sys::VIR_DOMAIN_EVENT_SHUTDOWN_HOST) => {
                self.signalled.insert(id);
                None
            }
            (sys::VIR_DOMAIN_EVENT_STOPPED, detail) => {
                let signalled = self.signalled.remove(&id);
                Some(match detail {
                    sys::VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN if signalled => Ending::Failed,
                    sys::VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN => Ending::Shutdown,
                    sys::VIR_DOMAIN_EVENT_STOPPED_CRASHED => Ending::Panicked,
                    sys::VIR_DOMAIN_EVENT_STOPPED_FAILED => Ending::Failed,
                    // Saved or migrated by somebody, which we do not do, is the same to us.
                    _ => Ending::Destroyed,
                })
            }
            _ => None,
        }
    }
}

/// Whether a lifecycle event says that a machine was paused. Why is its state to say: this may be over.
pub(super) fn is_pause(event: RawEvent) -> bool {
    u32::try_from(event.event) == Ok(sys::VIR_DOMAIN_EVENT_SUSPENDED)
}

/// Where a machine stands.
pub(super) fn state_of(raw: RawState) -> DomainState {
    DomainState {
        phase: phase_of(raw),
        pause: pause_of(raw),
        coming_up: is_coming_up(raw),
        going_down: u32::try_from(raw.state) == Ok(sys::VIR_DOMAIN_SHUTDOWN),
    }
}

fn is_coming_up(raw: RawState) -> bool {
    let (state, reason) = (u32::try_from(raw.state), u32::try_from(raw.reason));
    (state, reason) == (Ok(sys::VIR_DOMAIN_PAUSED), Ok(sys::VIR_DOMAIN_PAUSED_STARTING_UP))
}

fn pause_of(raw: RawState) -> Option<Pause> {
    let (state, reason) = (u32::try_from(raw.state).ok()?, u32::try_from(raw.reason).ok()?);
    match (state, reason) {
        (sys::VIR_DOMAIN_PAUSED, sys::VIR_DOMAIN_PAUSED_IOERROR) => Some(Pause::DiskFull),
        // On the way up, or down.
        (sys::VIR_DOMAIN_PAUSED, sys::VIR_DOMAIN_PAUSED_STARTING_UP | sys::VIR_DOMAIN_PAUSED_SHUTTING_DOWN) => None,
        (sys::VIR_DOMAIN_PAUSED, _) => Some(Pause::ByHand),
        _ => None,
    }
}

/// Whether a machine in this state is on, or how it went off.
fn phase_of(raw: RawState) -> DomainPhase {
    let (state, reason) = (u32::try_from(raw.state).unwrap_or(0), u32::try_from(raw.reason).unwrap_or(0));
    match state {
        sys::VIR_DOMAIN_SHUTOFF => DomainPhase::Off(match reason {
            sys::VIR_DOMAIN_SHUTOFF_SHUTDOWN => Ending::Shutdown,
            // Said of a guest that panicked, but also of every QEMU that died; only the events tell these apart.
            sys::VIR_DOMAIN_SHUTOFF_CRASHED | sys::VIR_DOMAIN_SHUTOFF_FAILED => Ending::Failed,
            sys::VIR_DOMAIN_SHUTOFF_DESTROYED
            | sys::VIR_DOMAIN_SHUTOFF_MIGRATED
            | sys::VIR_DOMAIN_SHUTOFF_SAVED
            | sys::VIR_DOMAIN_SHUTOFF_FROM_SNAPSHOT => Ending::Destroyed,
            _ => Ending::Unseen,
        }),
        sys::VIR_DOMAIN_CRASHED => DomainPhase::Off(Ending::Panicked),
        _ => DomainPhase::On,
    }
}

/// vmwrapper's line in an error of libvirt's (`process exited while connecting to monitor: <stderr>`).
pub(super) fn wrapper_line_of(message: &str) -> Option<WrapperError> {
    let line = message.lines().find_map(|line| line.find("vmwrapper[").map(|at| &line[at..]))?;
    let (code, _) = line.strip_prefix("vmwrapper[")?.split_once("]:")?;
    Some(WrapperError { code: code.parse().ok()?, line: line.trim_end().to_owned() })
}

/// Whether an error of libvirt's says that its child may not start vmwrapper.
pub(super) fn is_start_forbidden(message: &str) -> bool {
    message.split_once("cannot execute binary ").is_some_and(|(_, rest)| rest.contains(": Permission denied"))
}

/// Whether an error of libvirt's repeats a line that QEMU has written (`2026-01-01T00:00:00Z qemu-system-x86_64: <what>`).
pub(super) fn is_qemus_word(message: &str) -> bool {
    message
        .split_whitespace()
        .any(|word| word.strip_suffix(':').is_some_and(|name| name.starts_with("qemu-system-") || name == "qemu-kvm"))
}

/// vmwrapper's last line in what libvirt logs of a machine.
pub(super) fn wrapper_line_in_log(tail: &str) -> Option<WrapperError> {
    // Of an earlier start, if this one has said nothing: libvirt heads each with what it executes.
    let this_start = tail.rfind(": starting up libvirt version").map_or(tail, |at| tail.get(at..).unwrap_or_default());
    wrapper_line_of(this_start)
}

/// The DAC base label in a capabilities document: `<baselabel type='kvm'>+64055:+64055</baselabel>`.
pub(super) fn qemu_user_of(capabilities: &str) -> Option<QemuUser> {
    let mut reader = Reader::from_str(capabilities);
    let mut path: Vec<String> = Vec::new();
    let mut dac = false;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => path.push(start.name().as_ref().to_owned()),
            Event::End(end) => {
                dac &= end.name().as_ref() != "secmodel";
                path.pop();
            }
            Event::Text(text) => match path.last().map(String::as_str) {
                Some("model") if path.iter().any(|name| name == "secmodel") => dac = text.trim() == "dac",
                Some("baselabel") if dac => {
                    let (uid, gid) = text.trim().split_once(':')?;
                    let number = |text: &str| text.trim_start_matches('+').parse().ok();
                    return Some(QemuUser { uid: number(uid)?, gid: number(gid)? });
                }
                _ => {}
            },
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// The files of a domain's disks: `<disk><source file='...'/></disk>`, without what is in their `<backingStore>`.
pub(super) fn disks_of(domain: &str) -> Vec<PathBuf> {
    of_disks(domain, "source", "file").into_iter().map(PathBuf::from).collect()
}

/// libvirt's names of a domain's disks: `<disk><target dev='...'/></disk>`.
pub(super) fn targets_of(domain: &str) -> Vec<String> {
    of_disks(domain, "target", "dev")
}

/// An attribute of all elements of a name that are right in a `<disk>`, up to where the text is no XML.
fn of_disks(domain: &str, name: &str, attribute: &str) -> Vec<String> {
    let mut reader = Reader::from_str(domain);
    let mut path: Vec<String> = Vec::new();
    let mut values = Vec::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                values.extend(of_disk(&path, &start, name, attribute));
                path.push(start.name().as_ref().to_owned());
            }
            Ok(Event::Empty(start)) => values.extend(of_disk(&path, &start, name, attribute)),
            Ok(Event::End(_)) => drop(path.pop()),
            Ok(Event::Eof) | Err(_) => return values,
            Ok(_) => {}
        }
    }
}

/// An attribute of an element right in a `<disk>`.
fn of_disk(path: &[String], element: &BytesStart<'_>, name: &str, attribute: &str) -> Option<String> {
    let in_disk = path.last().is_some_and(|parent| parent == "disk");
    let value =
        (in_disk && element.name().as_ref() == name).then(|| element.try_get_attribute(attribute).ok()?)??;
    Some(quick_xml::escape::unescape(&value.value).ok()?.into_owned())
}

/// What our metadata element says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) instance: String,
    /// May be empty.
    pub(super) sandbox: String,
    /// May be empty.
    pub(super) pod_uid: String,
}

/// The mark that is our metadata element.
pub(super) fn mark_of(element: &str) -> Option<Mark> {
    let mut reader = Reader::from_str(element);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) | Event::Empty(start) => {
                let value = |name: &str| Some(start.try_get_attribute(name).ok()??.value.into_owned());
                return Some(Mark {
                    instance: value("instance")?,
                    sandbox: value("sandbox").unwrap_or_default(),
                    pod_uid: value("pod-uid").unwrap_or_default(),
                });
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stopped_machine_has_ended() {
        for (event, detail, wanted) in [
            (5, 0, Some(Ending::Shutdown)),
            (5, 1, Some(Ending::Destroyed)),
            (5, 2, Some(Ending::Panicked)),
            (5, 5, Some(Ending::Failed)),
            (5, 4, Some(Ending::Destroyed)),
            (5, 99, Some(Ending::Destroyed)),
            (8, 0, None),
            (6, 0, None),
            (2, 0, None),
            (-1, 0, None),
        ] {
            let raw = RawEvent { id: Uuid::from_u128(1), event, detail };
            assert_eq!(Endings::default().of(raw), wanted, "{event}/{detail}");
        }
    }

    #[test]
    fn a_qemu_that_was_told_to_go_by_a_signal_has_not_powered_off() {
        let mut endings = Endings::default();
        let mut tell = |id, event, detail| endings.of(RawEvent { id: Uuid::from_u128(id), event, detail });
        assert_eq!(tell(1, 6, 2), None, "signalled");
        assert_eq!(tell(2, 6, 1), None, "powered off by its guest");
        assert_eq!(tell(2, 5, 0), Some(Ending::Shutdown), "another machine's signal is not its own");
        assert_eq!(tell(1, 5, 0), Some(Ending::Failed));
        assert_eq!(tell(1, 5, 0), Some(Ending::Shutdown), "the next life starts afresh");
        assert_eq!(tell(1, 6, 2), None);
        assert_eq!(tell(1, 5, 1), Some(Ending::Destroyed), "destroyed is destroyed, whoever signalled");
    }

    #[test]
    fn states_are_on_or_off() {
        let phase = |state, reason| phase_of(RawState { state, reason });
        assert_eq!(phase(1, 1), DomainPhase::On);
        assert_eq!(phase(3, 1), DomainPhase::On, "paused");
        assert_eq!(phase(4, 1), DomainPhase::On, "being shut down");
        assert_eq!(phase(5, 1), DomainPhase::Off(Ending::Shutdown));
        assert_eq!(phase(5, 2), DomainPhase::Off(Ending::Destroyed));
        assert_eq!(phase(5, 3), DomainPhase::Off(Ending::Failed), "what libvirt says of a QEMU that was killed");
        assert_eq!(phase(5, 5), DomainPhase::Off(Ending::Destroyed), "saved by somebody");
        assert_eq!(phase(5, 6), DomainPhase::Off(Ending::Failed));
        assert_eq!(phase(5, 0), DomainPhase::Off(Ending::Unseen));
        assert_eq!(phase(6, 1), DomainPhase::Off(Ending::Panicked));
    }

    #[test]
    fn a_full_disk_is_told_from_a_person() {
        let pause = |state, reason| state_of(RawState { state, reason }).pause;
        assert_eq!(pause(3, 5), Some(Pause::DiskFull));
        assert_eq!(pause(3, 1), Some(Pause::ByHand));
        assert_eq!(pause(3, 9), Some(Pause::ByHand), "snapshot");
        assert_eq!(pause(3, 11), None, "starting up");
        assert_eq!(pause(3, 8), None, "shutting down");
        assert_eq!(pause(1, 5), None, "running");
        assert_eq!(pause(5, 5), None, "off");
        let coming_up = |state, reason| state_of(RawState { state, reason }).coming_up;
        assert!(coming_up(3, 11) && !coming_up(3, 1) && !coming_up(1, 11));
        let going_down = |state| state_of(RawState { state, reason: 1 }).going_down;
        assert!(going_down(4) && !going_down(1) && !going_down(5));
        let event = |event, detail| is_pause(RawEvent { id: Uuid::nil(), event, detail });
        assert!(event(3, 2) && event(3, 0));
        assert!(!event(4, 0), "resumed");
    }

    #[test]
    fn the_line_of_vmwrapper_is_found_in_libvirts_error() {
        let message =
            "internal error: process exited while connecting to monitor: vmwrapper[69]: no answer; is it up?\n";
        let error = wrapper_line_of(message).expect("found");
        assert_eq!((error.code, error.line.as_str()), (69, "vmwrapper[69]: no answer; is it up?"));
        for other in ["qemu-system-x86_64: -drive: no such file", "vmwrapper: x", "vmwrapper[x]: y", ""] {
            assert!(wrapper_line_of(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_start_that_a_policy_forbids_is_told_from_one_that_failed() {
        // As libvirt 11 has it under AppArmor.
        let forbidden = "internal error: process exited while connecting to monitor: libvirt:  error : cannot execute binary \
                         /usr/lib/virtlet/vmwrapper: Permission denied\n";
        assert!(is_start_forbidden(forbidden));
        for other in [
            "cannot execute binary /usr/lib/virtlet/vmwrapper: No such file or directory",
            "Could not open '/dev/vda': Permission denied",
        ] {
            assert!(!is_start_forbidden(other), "{other}");
        }
    }

    #[test]
    fn what_qemu_says_is_told_from_what_is_said_of_it() {
        let said = "internal error: process exited while connecting to monitor: 2026-01-01T00:00:00.000000Z qemu-system-x86_64: \
                    -blockdev {}: Could not open '/x': Permission denied";
        assert!(is_qemus_word(said) && is_qemus_word("QEMU unexpectedly closed the monitor (vm='x'): qemu-kvm: no"));
        for other in [
            "libvirt:  error : cannot execute binary /usr/bin/qemu-system-x86_64: Permission denied",
            "Failed to start QEMU binary /usr/bin/qemu-system-x86_64 for probing: Permission denied",
            "",
        ] {
            assert!(!is_qemus_word(other), "{other}");
        }
    }

    #[test]
    fn qemus_user_is_the_dac_label() {
        let xml = "<capabilities><host><secmodel><model>apparmor</model><doi>0</doi><baselabel type='kvm'>x</baselabel>\
                   </secmodel><secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+64055:+993</baselabel>\
                   <baselabel type='qemu'>+64055:+993</baselabel></secmodel></host></capabilities>";
        assert_eq!(qemu_user_of(xml), Some(QemuUser { uid: 64055, gid: 993 }));
        for bad in ["", "<a>", "<capabilities/>", "<secmodel><model>dac</model><baselabel>a:b</baselabel></secmodel>"] {
            assert_eq!(qemu_user_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_machines_disks_are_the_files_that_it_writes() {
        let xml = "<domain><devices><disk type='file'><driver name='qemu'/><source file='/v/a&amp;b/root.qcow2' index='2'>\
                   <seclabel model='dac'/></source><backingStore type='file'><source file='/images/below'/></backingStore>\
                   </disk><disk type='file'><source file='/run/seed.iso'/></disk><disk type='block'><source dev='/dev/sda'/>\
                   </disk><serial><source file='/log'/></serial></devices></domain>";
        assert_eq!(disks_of(xml), [PathBuf::from("/v/a&b/root.qcow2"), PathBuf::from("/run/seed.iso")]);
        assert!(disks_of("junk").is_empty());
        let xml = "<domain><devices><disk><source><target dev='no'/></source><target dev='vda' bus='virtio'/></disk><disk>\
                   <target dev='sdb'/></disk><interface><target dev='tap0'/></interface></devices></domain>";
        assert_eq!(targets_of(xml), ["vda", "sdb"]);
    }

    #[test]
    fn our_mark_is_read_from_our_element() {
        let mark = |sandbox: &str, pod_uid: &str| {
            Some(Mark { instance: "abc".into(), sandbox: sandbox.into(), pod_uid: pod_uid.into() })
        };
        assert_eq!(mark_of("<machine instance='abc' sandbox='s' pod-uid='u'/>"), mark("s", "u"));
        assert_eq!(mark_of("<machine instance='abc' pod='x'/>"), mark("", ""));
        assert_eq!(mark_of("<machine/>"), None);
        assert_eq!(mark_of("junk"), None);
    }
}
