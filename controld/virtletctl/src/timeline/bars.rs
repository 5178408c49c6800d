//! A start as bars, one below another, each where it was in time. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Phase, Timeline};
use crate::text::shown;

/// Columns of a terminal that are used at least and at most.
const WIDTHS: std::ops::RangeInclusive<usize> = 50..=160;
/// Columns of a part's name, and of how long it took.
const NAME: usize = 24;
const TIME: usize = 14;
/// Signs of parts that came to their end, failed, and are under way.
const SIGNS: [char; 3] = ['#', '!', '~'];
/// How these are colored (ECMA-48, SGR): green, red, yellow.
const COLORS: [&str; 3] = ["\x1b[32m", "\x1b[31m", "\x1b[33m"];
const PLAIN: &str = "\x1b[0m";

/// What parts are to people; those that are not known are called as controld does.
const NAMES: [(&str, &str); 13] = [
    ("sandbox", "sandbox"),
    ("network", "  network, CNI plugins"),
    ("pull", "image pull"),
    ("plan", "plan"),
    ("disks", "disks"),
    ("sources", "volumes, seed's sources"),
    ("turn", "wait for other starts"),
    ("prepare", "seed, console, taps"),
    ("define", "libvirt: define"),
    ("launch", "libvirt: start, QEMU"),
    ("admit", "cgroup"),
    ("output", "until first output"),
    ("agent", "until agent answers"),
];

/// Draws the start of a pod's machine, `width` columns wide if that can be used.
pub(super) fn draw(pod: &str, timeline: &Timeline, width: usize, is_colored: bool) -> String {
    let room = width.clamp(*WIDTHS.start(), *WIDTHS.end()) - NAME - TIME - 2;
    let all = timeline.phases.iter().map(|phase| phase.from + phase.took.unwrap_or_default()).max().unwrap_or_default();
    let mut text = format!("{}: {}", shown(pod), time(all));
    if let Some(began) = &timeline.began {
        // Writing to a string does not fail, here and below.
        let _ = write!(text, " since {began}");
    }
    text.push('\n');
    for phase in &timeline.phases {
        let (before, length) = place(phase, all, room);
        let sign = usize::from(phase.failed) + 2 * usize::from(phase.took.is_none() && !phase.failed);
        let (sign, color) = (SIGNS[sign], COLORS[sign]);
        let bar = sign.to_string().repeat(length);
        let bar = if is_colored { format!("{color}{bar}{PLAIN}") } else { bar };
        let took = match (phase.took, phase.failed) {
            (Some(took), false) => time(took),
            (Some(took), true) => format!("{} failed", time(took)),
            (None, _) => "under way".to_owned(),
        };
        let rest = room - before - length;
        let name = name(&phase.name);
        let _ = writeln!(text, "{name:NAME$} {:before$}{bar}{:rest$} {took:>TIME$}", "", "");
    }
    if !timeline.unseen.is_empty() {
        let unseen: Vec<String> = timeline.unseen.iter().map(|name| self::name(name).trim_start().to_owned()).collect();
        let _ = writeln!(text, "not a part of it, or not seen: {}", unseen.join("; "));
    }
    text
}

/// Where a bar begins, and how long it is, within `room` columns that stand for `all`.
fn place(phase: &Phase, all: Duration, room: usize) -> (usize, usize) {
    let all = all.as_micros().max(1);
    // Below `room`, as long as the time is within all of it.
    let column = |time: Duration| usize::try_from(time.as_micros() * room as u128 / all).unwrap_or(room).min(room);
    let before = column(phase.from).min(room - 1);
    let end = phase.took.map_or(room, |took| column(phase.from.saturating_add(took)));
    (before, end.saturating_sub(before).max(1))
}

fn name(of: &str) -> String {
    let known = NAMES.iter().find(|(name, _)| *name == of).map(|(_, shown)| (*shown).to_owned());
    known.unwrap_or_else(|| shown(&of.chars().take(NAME).collect::<String>()).chars().take(NAME).collect())
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..100 => format!("{:.2} s", time.as_secs_f64()),
        seconds => format!("{seconds} s"),
    }
}
