//! What machines an emulator can make, by libvirt's word.

use std::collections::BTreeSet;
use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::MachineType;
use vmspec::{Accelerator, Offer};

use super::Hypervisor;
use super::calls::{Busy, OFFER_DEADLINE, QUICK_DEADLINE};
use super::ffi::{Connection, INVALID_ARG, LibvirtError};

impl Hypervisor {
    /// What machines of a type `emulator` can make, or why it can make none.
    ///
    /// # Errors
    /// When libvirt does not answer, or cannot run the emulator.
    pub async fn offer(
        &self,
        emulator: &Path,
        machine: &MachineType,
        accel: Accelerator,
    ) -> Result<std::result::Result<Offer, LibvirtError>> {
        // libvirt calls accelerators as we do.
        let (emulator, machine, accel) = (emulator.display().to_string(), machine.to_string(), accel.to_string());
        let ask = move |connection: &Connection| match connection.domain_capabilities(&emulator, &machine, &accel) {
            Err(error) if error.code == INVALID_ARG => Ok(Err(error)),
            told => told.map(Ok),
        };
        let what = "tell what the emulator can do";
        let late =
            |_elapsed| Error::because(Kind::Deadline, format!("failed to {what}"), Busy { deadline: OFFER_DEADLINE });
        let _one = tokio::time::timeout(OFFER_DEADLINE, self.shared.offering.lock()).await.map_err(late)?;
        let answered = self.call(what, OFFER_DEADLINE, ask).await;
        self.shared.policy.hear_probe(&answered);
        let told = match answered? {
            Ok(told) => told,
            Err(nothing) => return Ok(Err(nothing)),
        };
        let unreadable = || Error::new(Kind::Internal, "libvirt's capabilities of the emulator could not be read");
        offer_of(&told).map(Ok).ok_or_else(unreadable)
    }

    /// The machine types that there are.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn machine_types(&self) -> Result<BTreeSet<String>> {
        let told = self.call("tell its capabilities", QUICK_DEADLINE, Connection::capabilities).await?;
        Ok(machine_types_of(&told))
    }
}

/// What a document of domain capabilities says; `None` if it is none.
fn offer_of(capabilities: &str) -> Option<Offer> {
    let mut reader = Reader::from_str(capabilities);
    let mut offer = Offer::default();
    let mut open: Vec<Element> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                let element = Element::of(&start);
                begin(&mut offer, &open, &element);
                open.push(element);
            }
            Event::Empty(start) => begin(&mut offer, &open, &Element::of(&start)),
            Event::End(_) => drop(open.pop()),
            Event::Text(text) => self::text(&mut offer, &open, text.trim()),
            Event::Eof => return (!offer.machine.is_empty()).then_some(offer),
            _ => {}
        }
    }
}

/// The machine types that a document of capabilities says to be there for guests like this node.
fn machine_types_of(capabilities: &str) -> BTreeSet<String> {
    let mut reader = Reader::from_str(capabilities);
    let mut types = BTreeSet::new();
    let (mut of_node, mut in_machine) = (false, false);
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => match start.name().as_ref() {
                "arch" => of_node = attribute(&start, "name").as_deref() == Some("x86_64"),
                name => in_machine = name == "machine",
            },
            Ok(Event::Text(text)) if of_node && in_machine => drop(types.insert(text.trim().to_owned())),
            Ok(Event::End(end)) => {
                of_node &= end.name().as_ref() != "arch";
                in_machine = false;
            }
            Ok(Event::Eof) | Err(_) => return types,
            Ok(_) => {}
        }
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    Some(element.try_get_attribute(name).ok()??.value.into_owned())
}

/// An element with the attributes that matter of any.
struct Element {
    tag: String,
    name: String,
    /// `supported` or `usable`; without, there it is.
    there: bool,
}

impl Element {
    fn of(start: &BytesStart<'_>) -> Self {
        let says_no = |name| attribute(start, name).as_deref() == Some("no");
        Self {
            tag: start.name().as_ref().to_owned(),
            name: attribute(start, "name").unwrap_or_default(),
            there: !says_no("supported") && !says_no("usable"),
        }
    }

    fn is(&self, tag: &str, name: &str) -> bool {
        self.tag == tag && self.name == name
    }
}

/// What an element says that is empty, or begins.
fn begin(offer: &mut Offer, open: &[Element], element: &Element) {
    if element.tag == "mode" && element.there && open.last().is_some_and(|parent| parent.tag == "cpu") {
        offer.cpu_modes.insert(element.name.clone());
    }
}

/// What a text says.
fn text(offer: &mut Offer, open: &[Element], text: &str) {
    match open {
        [root, machine] if root.tag == "domainCapabilities" && machine.tag == "machine" => {
            text.clone_into(&mut offer.machine);
        }
        [.., mode, model] if mode.is("mode", "custom") && model.tag == "model" => {
            offer.cpu_models.insert(text.to_owned(), model.there);
        }
        [.., disk, bus, value] if disk.tag == "disk" && bus.is("enum", "bus") && value.tag == "value" => {
            offer.disk_buses.insert(text.to_owned());
        }
        [.., os, firmware, value] if os.tag == "os" && firmware.is("enum", "firmware") && value.tag == "value" => {
            offer.firmwares.insert(text.to_owned());
        }
        [.., os, loader, value] if os.tag == "os" && loader.tag == "loader" && value.tag == "value" => {
            offer.loaders.insert(text.to_owned());
        }
        [.., tpm, backend, value] if tpm.tag == "tpm" && backend.is("enum", "backendModel") && value.tag == "value" => {
            offer.tpm |= text == "emulator";
        }
        [.., loader, secure, value]
            if loader.tag == "loader" && secure.is("enum", "secure") && value.tag == "value" =>
        {
            offer.secure_boot |= text == "yes";
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_capabilities_are_an_offer() {
        let offer = offer_of(include_str!("fixtures/domain_capabilities.xml")).expect("read");
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(offer.machine, "pc-q35-10.0");
        assert_eq!(offer.cpu_modes, set(&["custom", "host-model", "maximum"]));
        assert_eq!(offer.cpu_models, [("Westmere".into(), true), ("Broadwell".into(), false)].into());
        assert_eq!(offer.disk_buses, set(&["fdc", "sata", "scsi", "usb", "virtio"]));
        assert_eq!(offer.loaders, set(&["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE_4M.ms.fd"]));
        assert_eq!((offer.firmwares, offer.secure_boot, offer.tpm), (set(&["efi"]), true, true));
        for other in ["", "no XML", "<capabilities><machine>x</machine></capabilities>", "<domainCapabilities>"] {
            assert_eq!(offer_of(other), None, "{other}");
        }
    }

    #[test]
    fn machine_types_are_those_of_the_nodes_architecture() {
        let xml = "<capabilities>
            <guest><arch name='i686'><machine>isapc</machine></arch></guest>
            <guest><arch name='x86_64'><wordsize>64</wordsize><machine maxCpus='255'>pc-i440fx-10.0</machine>
            <machine canonical='pc-q35-10.0' maxCpus='4096'>q35</machine></arch></guest></capabilities>";
        assert_eq!(machine_types_of(xml).into_iter().collect::<Vec<_>>(), ["pc-i440fx-10.0", "q35"]);
        assert!(machine_types_of("no XML").is_empty());
    }
}
