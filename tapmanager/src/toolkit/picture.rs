//! A picture of a pod's way from its guest to the node, for `explain --picture`.
//!
//! [`look`] asks the kernel. [`of`] lays out what there is to be drawn, of the data that `explain` has in JSON: boxes one below another,
//! with what is between them. [`text`] and [`svg`] draw that, and decide nothing. Both are pure, and so is [`of`]: names come from outside,
//! and are made harmless there, once.

mod svg;
mod text;

use proto::tap::{Nic, NicKind, PodDetail, Tap};

use crate::net::path;
use crate::net::tap_name;
use crate::net::way::{self, End, Relation, Stop, Way};
use crate::sys::netns::Netns;

/// The pod's ways, in the order of its NICs, or why nobody looked.
pub(super) type Seen = Result<Vec<Way>, String>;

/// Most characters of a text of others.
const MAX_TEXT: usize = 240;
/// Most addresses of a NIC that are drawn.
const MAX_ADDRESSES: usize = 8;
/// Variables by which the locale is known, the first that is set counts (POSIX, 8.2).
const LOCALE: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];

/// What is to be drawn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    title: String,
    /// Of the pod as a whole.
    remarks: Vec<String>,
    /// One for each NIC.
    chains: Vec<Chain>,
}

/// The way of one NIC.
#[derive(Debug, PartialEq, Eq)]
struct Chain {
    title: String,
    first: Station,
    rest: Vec<(Wire, Station)>,
}

/// A box.
#[derive(Debug, PartialEq, Eq)]
struct Station {
    /// Where it is, if the one above it is elsewhere.
    place: &'static str,
    lines: Vec<String>,
    /// What is wrong there.
    marks: Vec<String>,
}

/// What is between two boxes.
#[derive(Debug, PartialEq, Eq)]
struct Wire {
    label: &'static str,
    /// Nothing crosses it.
    broken: bool,
}

/// Looks at the pod's ways as they are now. Blocks.
pub(super) fn look(detail: &PodDetail) -> Seen {
    let Some(net) = &detail.net else { return Err("the pod has no network".to_owned()) };
    let gone = || format!("namespace `{}` is gone", net.netns.display());
    let seen = || -> Result<Vec<Way>, common::Reason> {
        let failed = |cause| common::Reason::new("the pod's namespace was not looked at").with(cause);
        let pod = Netns::open(&net.netns).map_err(failed)?.ok_or_else(|| common::Reason::new(gone()))?;
        let node = Netns::of_process().map_err(failed)?;
        way::look(&pod, &node, &net.nics, detail.request.anti_spoof)
            .map_err(|cause| common::Reason::new("the pod's ways were not looked at").with(cause))
    };
    seen().map_err(|why| common::Chain(&why).to_string())
}

/// Whether the locale takes more than ASCII.
pub(super) fn locale_is_utf8() -> bool {
    let said = LOCALE.into_iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    let said = said.map(|value| value.to_string_lossy().to_ascii_lowercase());
    said.is_some_and(|said| said.contains("utf-8") || said.contains("utf8"))
}

/// The picture of a pod.
pub(super) fn of(detail: &PodDetail, seen: &Seen) -> Picture {
    let PodDetail { summary, net, .. } = detail;
    let title = clean(&format!("pod {}, {}/{}", summary.pod.as_str(), summary.namespace, summary.name));
    let trouble = summary.trouble.as_ref().map(|trouble| format!("trouble: {trouble}"));
    let unseen = seen.as_ref().err().map(|why| format!("drawn as it was made, since nobody looked how it is: {why}"));
    let remarks = trouble.iter().chain(&unseen).map(|remark| clean(remark)).collect();
    let ways = seen.as_deref().unwrap_or_default();
    let nics = net.iter().flat_map(|net| net.nics.iter().enumerate());
    let chains = nics.map(|(place, nic)| chain(nic, place, ways.get(place))).collect();
    Picture { title, remarks, chains }
}

fn chain(nic: &Nic, place: usize, way: Option<&Way>) -> Chain {
    let title = clean(&format!("NIC {}: `{}` of network `{}`", place + 1, nic.name, nic.network));
    let mut drawn = Vec::new();
    let mut rest = match nic.kind {
        NicKind::Tap(_) => tapped(nic, place, way, &mut drawn),
        NicKind::Vfio(vfio) => {
            let station = Station {
                place: "node",
                lines: vec![format!("virtual function {}, on vfio-pci", vfio.device)],
                marks: Vec::new(),
            };
            vec![(
                Wire { label: "passed through: its card carries the frames, its PF guards them", broken: false },
                station,
            )]
        }
    };
    for stop in way.into_iter().flat_map(|way| &way.beyond) {
        rest.push(beyond(stop, way, &mut drawn));
    }
    // Marks of what is not in the picture belong to the pod's end of the way.
    let left =
        way.into_iter().flat_map(|way| &way.marks).filter(|mark| !drawn.iter().any(|name| *name == mark.at.as_str()));
    let left: Vec<String> = left.map(|mark| clean(&mark.line)).collect();
    if let Some((_, station)) = rest.first_mut() {
        station.marks.extend(left);
    }
    let mut before = "guest";
    for (_, station) in &mut rest {
        let place = station.place;
        station.place = if place == before { "" } else { place };
        before = place;
    }
    Chain { title, first: guest(nic, way), rest }
}

fn guest(nic: &Nic, way: Option<&Way>) -> Station {
    let model = match nic.kind {
        NicKind::Tap(Tap { queues: 1, .. }) => "virtio, 1 queue".to_owned(),
        NicKind::Tap(Tap { queues, .. }) => format!("virtio, {queues} queues"),
        NicKind::Vfio(_) => "the card's own".to_owned(),
    };
    let mut lines = vec![clean(&format!("{}: {model}, MTU {}", nic.name, nic.mtu)), nic.mac.to_string()];
    lines.extend(nic.addresses.iter().take(MAX_ADDRESSES).map(ToString::to_string));
    let more = nic.addresses.len().saturating_sub(MAX_ADDRESSES);
    if more > 0 {
        lines.push(format!("and {more} more addresses"));
    }
    let counters = way.and_then(|way| way.counters.as_ref());
    lines.extend(counters.map(|it| format!("has received {} packets, sent {}", it.rx_packets, it.tx_packets)));
    Station { place: "guest", lines, marks: Vec::new() }
}

/// From the guest's end to the pod's link.
fn tapped(nic: &Nic, place: usize, way: Option<&Way>, drawn: &mut Vec<String>) -> Vec<(Wire, Station)> {
    let tap = tap_name(place);
    let holder = way.and_then(|way| way.tap.as_ref()).map(|tap| tap.carrier);
    let mut stations = vec![(
        Wire {
            label: match holder {
                Some(false) => "no machine holds it",
                Some(true) => "held by the machine",
                None => "",
            },
            broken: way.is_some() && holder.is_none(),
        },
        pods(tap.as_str(), way, way.and_then(|way| way.tap.as_ref()), drawn),
    )];
    let helper = path::of(nic.kind).helper(place);
    if let Some(helper) = &helper {
        let end = way.and_then(|way| way.helper.as_ref());
        let broken = way.is_some() && end.is_none();
        stations.push((Wire { label: "port of", broken }, pods(helper.as_str(), way, end, drawn)));
    }
    let is_cut = |mark: &way::Mark| mark.breaks && (mark.at == tap || mark.at == nic.name);
    let broken = way.is_some_and(|way| way.link.is_none() || way.marks.iter().any(is_cut));
    let label = if helper.is_some() { "has the port" } else { path::of(nic.kind).explanation() };
    let link = pods(nic.name.as_str(), way, way.and_then(|way| way.link.as_ref()), drawn);
    stations.push((Wire { label, broken }, link));
    stations
}

/// A link that is in the pod's namespace, or should be.
fn pods(name: &str, way: Option<&Way>, end: Option<&End>, drawn: &mut Vec<String>) -> Station {
    let line = match (way, end) {
        (_, Some(end)) => return station("pod", end, way, drawn),
        (Some(_), None) => format!("{name}: gone"),
        (None, None) => name.to_owned(),
    };
    drawn.push(name.to_owned());
    Station { place: "pod", lines: vec![clean(&line)], marks: marks(name, way) }
}

fn beyond(stop: &Stop, way: Option<&Way>, drawn: &mut Vec<String>) -> (Wire, Station) {
    let label = match stop.relation {
        Relation::Peer => "the other end of the pair",
        Relation::Parent => "lies on",
        Relation::Master => "port of",
        Relation::Pf => "virtual function of",
    };
    let place = if stop.on_node { "node" } else { "pod" };
    let mut station = match &stop.link {
        Some(end) => station(place, end, way, drawn),
        None if stop.relation == Relation::Pf => Station { place, lines: Vec::new(), marks: Vec::new() },
        None => Station { place: "?", lines: vec!["neither in the pod nor on the node".to_owned()], marks: Vec::new() },
    };
    station.lines.extend(stop.device.as_ref().map(|device| clean(&format!("physical function {device}"))));
    (Wire { label, broken: false }, station)
}

fn station(place: &'static str, end: &End, way: Option<&Way>, drawn: &mut Vec<String>) -> Station {
    let End { name, kind, mac, mtu, up, carrier: _, refused } = end;
    drawn.push(name.to_string());
    let kind = kind.as_deref().unwrap_or("hardware");
    let mut lines = vec![clean(&format!("{name}: {kind}, {}, MTU {mtu}", if *up { "up" } else { "down" }))];
    lines.extend(mac.map(|mac| mac.to_string()));
    if *refused > 0 {
        lines.push(format!("its guard dropped {refused} frames"));
    }
    Station { place, lines, marks: marks(name.as_str(), way) }
}

fn marks(name: &str, way: Option<&Way>) -> Vec<String> {
    let of = way.into_iter().flat_map(|way| &way.marks).filter(|mark| mark.at.as_str() == name);
    of.map(|mark| clean(&mark.line)).collect()
}

/// Text of others with nothing but letters, digits and ASCII's signs, on one line and not endless: so that it can neither drive a terminal nor
/// look like something else, and any XML may have it.
fn clean(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric());
    let mut clean: String = text.chars().take(MAX_TEXT).map(|c| if harmless(c) { c } else { '?' }).collect();
    if text.chars().nth(MAX_TEXT).is_some() {
        clean.push_str("...");
    }
    clean
}

/// Text in lines of at most `width` characters, broken between words where that can be.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut room = width;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let gap = usize::from(!line.is_empty());
        if word.len() + gap > room && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
            room = width;
        }
        if !line.is_empty() {
            line.push(' ');
            room -= 1;
        }
        while word.len() > room {
            line.extend(word.drain(..room));
            lines.push(std::mem::take(&mut line));
            room = width;
        }
        room -= word.len();
        line.extend(word);
    }
    lines.push(line);
    lines
}

impl Station {
    /// Its lines, those of marks apart.
    fn wrapped(&self, width: usize) -> (Vec<String>, Vec<String>) {
        let lines = self.lines.iter().flat_map(|line| wrapped(line, width)).collect();
        let marks = self.marks.iter().flat_map(|mark| wrapped(&format!("! {mark}"), width)).collect();
        (lines, marks)
    }
}

impl Chain {
    fn stations(&self) -> impl Iterator<Item = &Station> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|(_, station)| station))
    }
}

#[cfg(test)]
mod tests;
