//! When the parts of a machine's start began and ended, for people ([`Moments::told`]) and as a histogram.
//!
//! Kept in memory alone, beside the records, since whoever does a part has these: a restart of controld forgets it, and what it did not
//! see is told as not seen. What takes how long goes by the monotonic clock; the wall's says when a start began.
//!
//! - What comes before there is a machine (sandbox, network, pull) is kept for its sandbox or pod, and goes to the first machine that is
//!   made then ([`Moments::adopt`]): another machine of the sandbox did not wait for it.
//! - At most [`MOST`] things have moments. The oldest are forgotten first.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::now_nanos;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use proto::tap::PodId;
use serde::Serialize;
use vmspec::MachineId;

/// The name of the metric, without its unit.
const NAME: &str = "virtlet_start_phase_duration";
/// Upper bounds in seconds, from what libvirt does at once to a guest that boots emulated.
const BUCKETS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Some kilobytes of memory for each: far more machines than a node has.
const MOST: usize = 2048;

/// A part of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// `RunPodSandbox`, all of it.
    Sandbox,
    /// Of that, tapmanager's part: the namespace, CNI plugins, taps.
    Network,
    /// `PullImage`, as kubelet asked for it for the pod.
    Pull,
    /// Of `CreateContainer`: what the machine is to be.
    Plan,
    /// Of `CreateContainer`: its disks and its record.
    Disks,
    /// Of `StartContainer`: volumes that have to be ready, and what the seed needs of the cluster's API.
    Sources,
    /// Of `StartContainer`: others that are being started.
    Turn,
    /// Of `StartContainer`: console, seed, shared volumes, the taps' token.
    Prepare,
    /// libvirt's define.
    Define,
    /// libvirt's start: QEMU, and the hand-off of its taps.
    Launch,
    /// QEMU's move to the pod's cgroup.
    Admit,
    /// From when libvirt was asked for the start to the first byte of what goes to the pod's log: the console, or the output of the machine's command.
    Output,
    /// From then to the first word of our agent in the guest.
    Agent,
}

/// Whose a moment is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    Sandbox(PodId),
    /// A pod by its UID.
    Pod(String),
    Machine(MachineId),
}

/// The moments of starts. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Moments(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    took: Family<Labels, Histogram, fn() -> Histogram>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    phase: &'static str,
}

#[derive(Debug, Default)]
struct Kept {
    of: BTreeMap<Of, Entry>,
    /// How many entries there were ever.
    entries: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    spans: BTreeMap<Phase, Span>,
}

/// From when to when a part took.
#[derive(Debug, Clone, Copy)]
struct Span {
    began: Instant,
    /// The same by the wall's clock, in nanoseconds since the epoch.
    wall: i64,
    ended: Option<Instant>,
    failed: bool,
}

/// A part under way. Dropped before it is done, it has failed.
#[derive(Debug)]
pub struct Running {
    moments: Moments,
    of: Of,
    phase: Phase,
    began: Instant,
    is_done: bool,
}

/// What is known of a start.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// When its first part began, in nanoseconds since the epoch.
    pub began_nanos: i64,
    /// In the order in which they began.
    pub phases: Vec<ToldPhase>,
    /// Those that are no part of it, or were not seen.
    pub unseen: Vec<&'static str>,
}

/// What is known of a part.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldPhase {
    pub phase: &'static str,
    /// Since the first part began.
    pub from_micros: u64,
    /// `None` if it is under way.
    pub took_micros: Option<u64>,
    pub failed: bool,
}

// === impl Phase ===

impl Phase {
    /// All of them, in the order of a start.
    pub const ALL: [Self; 13] = [
        Self::Sandbox,
        Self::Network,
        Self::Pull,
        Self::Plan,
        Self::Disks,
        Self::Sources,
        Self::Turn,
        Self::Prepare,
        Self::Define,
        Self::Launch,
        Self::Admit,
        Self::Output,
        Self::Agent,
    ];

    /// As metrics and programs call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Network => "network",
            Self::Pull => "pull",
            Self::Plan => "plan",
            Self::Disks => "disks",
            Self::Sources => "sources",
            Self::Turn => "turn",
            Self::Prepare => "prepare",
            Self::Define => "define",
            Self::Launch => "launch",
            Self::Admit => "admit",
            Self::Output => "output",
            Self::Agent => "agent",
        }
    }
}

// === impl Moments ===

impl Default for Shared {
    fn default() -> Self {
        Self { took: Family::new_with_constructor(|| Histogram::new(BUCKETS)), kept: Mutex::default() }
    }
}

impl Moments {
    /// Has how long parts took in what a scrape tells.
    pub fn register(&self, registry: &mut Registry) {
        let help = "How long the parts of VMs' starts took that came to their end, by part";
        registry.register_with_unit(NAME, help, Unit::Seconds, self.0.took.clone());
        // So that a rate sees the first of each.
        for phase in Phase::ALL {
            drop(self.0.took.get_or_create(&Labels { phase: phase.name() }));
        }
    }

    /// A part begins now. An earlier one of its kind is forgotten.
    pub fn begin(&self, of: Of, phase: Phase) -> Running {
        let began = Instant::now();
        self.note(of.clone(), phase, Span { began, wall: now_nanos(), ended: None, failed: false });
        Running { moments: self.clone(), of, phase, began, is_done: false }
    }

    /// A part that has come to its end, from when to when.
    pub fn took(&self, of: Of, phase: Phase, (began, ended): (Instant, Instant)) {
        let ago = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let wall = now_nanos().saturating_sub(ago);
        self.note(of, phase, Span { began, wall, ended: Some(ended), failed: false });
        self.count(phase, ended.saturating_duration_since(began));
    }

    /// A machine whose start was seen has come to where it prints, or its agent answers. Only the first time of each counts. It is in the
    /// histogram if it was `awaited`: what nobody listened for may have come long before.
    pub fn reached(&self, machine: MachineId, phase: Phase, awaited: bool) {
        let mut kept = self.kept();
        let Some(entry) = kept.of.get_mut(&Of::Machine(machine)) else { return };
        let Some(launch) = entry.spans.get(&Phase::Launch).copied() else { return };
        if entry.spans.contains_key(&phase) {
            return;
        }
        let ended = Instant::now();
        entry.spans.insert(phase, Span { ended: Some(ended), failed: false, ..launch });
        drop(kept);
        if awaited {
            self.count(phase, ended.saturating_duration_since(launch.began));
        }
    }

    /// A machine was made after what is known of these, which is a part of its start then, and of no other.
    pub fn adopt<const N: usize>(&self, machine: MachineId, from: [Of; N]) {
        let mut kept = self.kept();
        let spans: Vec<_> = from.iter().filter_map(|of| kept.of.remove(of)).flat_map(|entry| entry.spans).collect();
        if !spans.is_empty() {
            kept.entry(Of::Machine(machine)).spans.extend(spans);
        }
    }

    /// Forgets what is gone.
    pub fn forget(&self, of: &Of) {
        self.kept().of.remove(of);
    }

    /// What is known of a machine's start; `None` if that is nothing.
    #[must_use]
    pub fn told(&self, machine: MachineId) -> Option<Told> {
        let kept = self.kept();
        let spans = &kept.of.get(&Of::Machine(machine))?.spans;
        let first = spans.values().min_by_key(|span| span.began)?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let told = |(phase, span): (&Phase, &Span)| ToldPhase {
            phase: phase.name(),
            from_micros: micros(span.began.saturating_duration_since(first.began)),
            took_micros: span.ended.map(|ended| micros(ended.saturating_duration_since(span.began))),
            failed: span.failed,
        };
        let mut phases: Vec<ToldPhase> = spans.iter().map(told).collect();
        phases.sort_by_key(|phase| phase.from_micros);
        let unseen = Phase::ALL.into_iter().filter(|phase| !spans.contains_key(phase)).map(Phase::name).collect();
        Some(Told { began_nanos: first.wall, phases, unseen })
    }

    fn note(&self, of: Of, phase: Phase, span: Span) {
        self.kept().entry(of).spans.insert(phase, span);
    }

    fn count(&self, phase: Phase, took: Duration) {
        self.0.took.get_or_create(&Labels { phase: phase.name() }).observe(took.as_secs_f64());
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // It is whole between two statements, so a panic elsewhere does not spoil it.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn entry(&mut self, of: Of) -> &mut Entry {
        if self.of.len() >= MOST && !self.of.contains_key(&of) {
            let oldest = self.of.iter().min_by_key(|(_, entry)| entry.number).map(|(of, _)| of.clone());
            self.of.retain(|of, _| Some(of) != oldest.as_ref());
        }
        let entries = &mut self.entries;
        self.of.entry(of).or_insert_with(|| {
            *entries += 1;
            Entry { number: *entries, spans: BTreeMap::new() }
        })
    }
}

// === impl Running ===

impl Running {
    /// It has come to its end.
    pub fn done(mut self) {
        self.is_done = true;
    }

    /// It is `work`, and fails if that does.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn over<T, E>(self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let outcome = work.await;
        if outcome.is_ok() {
            self.done();
        }
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = Instant::now();
        let failed = !self.is_done;
        let mut kept = self.moments.kept();
        let span = kept.of.get_mut(&self.of).and_then(|entry| entry.spans.get_mut(&self.phase));
        // Another one of its kind may have begun since.
        if let Some(span) = span.filter(|span| span.began == self.began) {
            (span.ended, span.failed) = (Some(ended), failed);
        }
        drop(kept);
        if !failed {
            self.moments.count(self.phase, ended.saturating_duration_since(self.began));
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn machine() -> MachineId {
        MachineId::random()
    }

    fn pod(text: &str) -> Of {
        Of::Sandbox(text.parse().expect("an id"))
    }

    /// Phases in order, those under way with a `?` and those that failed with a `!`.
    fn shown(moments: &Moments, machine: MachineId) -> Vec<String> {
        let told = moments.told(machine).expect("known");
        let sign = |phase: &ToldPhase| {
            if phase.failed {
                "!"
            } else if phase.took_micros.is_none() {
                "?"
            } else {
                ""
            }
        };
        told.phases.iter().map(|phase| format!("{}{}", phase.phase, sign(phase))).collect()
    }

    fn scrape(moments: &Moments) -> String {
        let mut registry = Registry::default();
        moments.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).expect("written");
        text
    }

    #[tokio::test]
    async fn parts_are_told_with_what_failed_and_what_is_under_way() {
        let (moments, id) = (Moments::default(), machine());
        assert_eq!(moments.told(id), None);
        moments.begin(Of::Machine(id), Phase::Turn).done();
        let failed = moments.begin(Of::Machine(id), Phase::Define).over(async { Err::<(), _>("no") }).await;
        assert_eq!(failed, Err("no"));
        let _launch = moments.begin(Of::Machine(id), Phase::Launch);
        assert_eq!(shown(&moments, id), ["turn", "define!", "launch?"]);
        let told = moments.told(id).expect("known");
        assert!(told.unseen.contains(&"pull") && !told.unseen.contains(&"turn"), "{:?}", told.unseen);
        let text = scrape(&moments);
        assert!(text.contains("virtlet_start_phase_duration_seconds_count{phase=\"turn\"} 1"), "{text}");
        for phase in ["define", "launch"] {
            assert!(text.contains(&format!("_count{{phase=\"{phase}\"}} 0")), "it has not come to its end: {text}");
        }
    }

    #[test]
    fn what_came_before_is_a_part_of_the_first_machines_start_alone() {
        let (moments, first, second) = (Moments::default(), machine(), machine());
        moments.begin(pod("s"), Phase::Sandbox).done();
        moments.begin(Of::Pod("uid".into()), Phase::Pull).done();
        for id in [first, second] {
            moments.adopt(id, [pod("s"), Of::Pod("uid".into())]);
            moments.begin(Of::Machine(id), Phase::Launch).done();
        }
        assert_eq!(shown(&moments, first), ["sandbox", "pull", "launch"]);
        assert_eq!(shown(&moments, second), ["launch"]);
        moments.forget(&Of::Machine(first));
        assert_eq!(moments.told(first), None);
    }

    #[test]
    fn a_guest_is_heard_once_and_only_after_a_start_that_was_seen() {
        let (moments, id) = (Moments::default(), machine());
        moments.reached(id, Phase::Output, true);
        moments.begin(Of::Machine(id), Phase::Turn).done();
        moments.reached(id, Phase::Output, true);
        assert_eq!(shown(&moments, id), ["turn"]);
        moments.begin(Of::Machine(id), Phase::Launch).done();
        moments.reached(id, Phase::Output, true);
        moments.reached(id, Phase::Output, true);
        moments.reached(id, Phase::Agent, false);
        assert_eq!(shown(&moments, id), ["turn", "launch", "output", "agent"]);
        let text = scrape(&moments);
        assert!(text.contains("_count{phase=\"output\"} 1"), "{text}");
        assert!(text.contains("_count{phase=\"agent\"} 0"), "{text}");
    }

    #[test]
    fn a_part_that_is_told_afterwards_has_its_time() {
        let (moments, id) = (Moments::default(), machine());
        let began = Instant::now();
        let [planned, made] = [10, 35].map(|millis| began + Duration::from_millis(millis));
        moments.took(Of::Machine(id), Phase::Disks, (planned, made));
        moments.took(Of::Machine(id), Phase::Plan, (began, planned));
        let told = moments.told(id).expect("known");
        let times: Vec<_> = told.phases.iter().map(|it| (it.phase, it.from_micros, it.took_micros)).collect();
        assert_eq!(times, [("plan", 0, Some(10_000)), ("disks", 10_000, Some(25_000))]);
        let json = serde_json::to_value(&told).expect("JSON");
        assert_eq!(json["phases"][1]["tookMicros"], 25_000);
        assert!(json["beganNanos"].is_i64() && json["unseen"].is_array(), "{json}");
    }

    #[test]
    fn the_oldest_are_forgotten_where_there_are_too_many() {
        let moments = Moments::default();
        let ids: Vec<MachineId> = (0..=MOST).map(|_| machine()).collect();
        for id in &ids {
            moments.begin(Of::Machine(*id), Phase::Turn).done();
        }
        assert_eq!(moments.told(ids[0]), None);
        assert!(moments.told(ids[1]).is_some() && moments.told(ids[MOST]).is_some());
        assert_eq!(moments.kept().of.len(), MOST);
    }
}
