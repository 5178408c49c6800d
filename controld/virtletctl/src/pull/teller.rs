//! What is said of a pull while it runs and when it is done.

use std::time::Duration;

use proto::images::{Image, Progress};
use serde_json::json;

use super::super::text::{harmless, shown, size};
use super::meter::{Meter, Reading};

/// How much of a name a line shows, so that it stays one line of 80 columns.
const NAME_SHOWN: usize = 24;
/// How often there is a new line where lines stay.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// Goes back to the start of the line and clears it (ECMA-48, EL).
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// How it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// In one line of a terminal.
    Line,
    /// In lines that stay.
    Plain,
    /// In lines of JSON.
    Json,
    /// Only what became of it.
    Outcome,
    /// Only what nobody may overlook.
    Silent,
}

/// Turns what controld says into text; all of it is to be written as it is, also if it is empty.
#[derive(Debug)]
pub(crate) struct Teller {
    manner: Manner,
    name: String,
    meter: Meter,
    /// When there was a line that stays.
    told: Option<Duration>,
    /// Whether a byte came.
    downloads: bool,
    /// What was done in the end.
    verb: &'static str,
}

impl Teller {
    pub(crate) fn new(manner: Manner, name: &str) -> Self {
        let name = name.to_owned();
        Self { manner, name, meter: Meter::default(), told: None, downloads: false, verb: "pulled" }
    }

    /// The same of an image that is sent.
    pub(crate) fn of_import(self) -> Self {
        Self { verb: "imported", ..self }
    }

    /// Of a message that came. `at` is the time since the pull began.
    pub(crate) fn progress(&mut self, at: Duration, progress: &Progress) -> String {
        self.downloads |= progress.bytes > progress.resumed;
        self.meter.note(at, progress);
        let Some(reading) = self.meter.read(at) else { return String::new() };
        match self.manner {
            Manner::Line => self.line(reading),
            Manner::Plain => {
                let is_due = self.told.is_none_or(|told| at.saturating_sub(told) >= LINE_EVERY);
                if !is_due {
                    return String::new();
                }
                self.told = Some(at);
                format!("{}\n", line(&shown(&self.name), reading))
            }
            Manner::Json => {
                let Reading { bytes, total, speed, left } = reading;
                let left = left.map(|left| left.as_secs());
                one_line(&json!({
                    "event": "progress", "name": self.name, "bytes": bytes, "total": total,
                    "bytesPerSecond": speed, "secondsLeft": left,
                }))
            }
            Manner::Outcome | Manner::Silent => String::new(),
        }
    }

    /// When nothing came for a while.
    pub(crate) fn tick(&self, at: Duration) -> String {
        match self.meter.read(at) {
            Some(reading) if self.manner == Manner::Line => self.line(reading),
            _ => String::new(),
        }
    }

    /// Before anything else is written.
    pub(crate) fn clear(&self) -> &'static str {
        if self.manner == Manner::Line { CLEAR_LINE } else { "" }
    }

    /// At the end. `downloaded` is controld's word that bytes came, of which no message may have told.
    pub(crate) fn done(&self, image: &Image, stale: bool, downloaded: bool) -> String {
        let (downloads, verb) = (self.downloads || downloaded, self.verb);
        match self.manner {
            Manner::Json => one_line(&json!({
                "event": verb, "name": self.name, "id": image.id, "size": image.size, "downloaded": downloads,
                "stale": stale,
            })),
            Manner::Silent if !stale => String::new(),
            _ => {
                let (name, size) = (shown(&self.name), size(image.size));
                match (downloads, stale) {
                    (_, true) => {
                        format!("{verb} {name} ({size}) (stale): its source was not asked or did not answer\n")
                    }
                    (true, false) => format!("{verb} {name} ({size})\n"),
                    (false, false) => format!("{name} ({size}) was here already\n"),
                }
            }
        }
    }

    fn line(&self, reading: Reading) -> String {
        let name = shown(&self.name);
        // The end of a name says more than its beginning.
        let surplus = name.chars().count().saturating_sub(NAME_SHOWN);
        let cut = if surplus > 0 { "..." } else { "" };
        let name: String = name.chars().skip(surplus).collect();
        format!("{CLEAR_LINE}{}", line(&format!("{cut}{name}"), reading))
    }
}

fn line(name: &str, reading: Reading) -> String {
    let bytes = size(reading.bytes);
    let mut line = match reading.total {
        Some(total) => {
            let percent = u128::from(reading.bytes.min(total)) * 100 / u128::from(total.max(1));
            format!("{name}: {bytes} of {} ({percent}%)", size(total))
        }
        None => format!("{name}: {bytes}"),
    };
    if let Some(speed) = reading.speed {
        line.push_str(&format!(", {}/s", size(speed)));
    }
    if let Some(left) = reading.left {
        line.push_str(&format!(", {} left", span(left)));
    }
    line
}

fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..360_000 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => "days".into(),
    }
}

fn one_line(json: &serde_json::Value) -> String {
    format!("{}\n", harmless(&json.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(manner: Manner, name: &str) -> String {
        let mut teller = Teller::new(manner, name);
        let mut told = teller.tick(Duration::ZERO);
        for (millis, bytes, total) in
            [(0, 0, 0), (200, 1 << 20, 96 << 20), (1000, 5 << 20, 96 << 20), (2500, 24 << 20, 96 << 20)]
        {
            told.push_str(&teller.progress(Duration::from_millis(millis), &Progress { bytes, total, resumed: 0 }));
        }
        told.push_str(&teller.tick(Duration::from_millis(60_000)));
        told.push_str(teller.clear());
        let image = Image { id: "sha256:ab\u{1b}".into(), size: 96 << 20, ..Image::default() };
        told.push_str(&teller.done(&image, false, false));
        told.push_str(&teller.done(&image, true, false));
        told
    }

    #[test]
    fn each_manner_has_its_text() {
        let name = "x/a\u{1b}[2J\u{9b}b";
        let all = [Manner::Line, Manner::Plain, Manner::Json, Manner::Outcome, Manner::Silent]
            .map(|manner| format!("{manner:?}\n{}", told(manner, name).replace(CLEAR_LINE, "<CLEAR>\n")));
        assert!(all.iter().flat_map(|text| text.chars()).all(|c| c == '\n' || !c.is_control()));
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_pull_that_brought_nothing_says_so() {
        let image = Image { id: "sha256:ab".into(), size: 96 << 20, ..Image::default() };
        let mut teller = Teller::new(Manner::Outcome, "x/a");
        assert_eq!(teller.done(&image, false, false), "x/a (96 MiB) was here already\n");
        teller.progress(Duration::ZERO, &Progress { bytes: 0, total: 96 << 20, resumed: 0 });
        assert_eq!(teller.done(&image, false, false), "x/a (96 MiB) was here already\n");
        teller.progress(Duration::ZERO, &Progress { bytes: 1, total: 96 << 20, resumed: 0 });
        assert_eq!(teller.done(&image, false, false), "pulled x/a (96 MiB)\n");
        // It was too fast for a message.
        let unheard = Teller::new(Manner::Outcome, "x/a");
        assert_eq!(unheard.done(&image, false, true), "pulled x/a (96 MiB)\n");
        // All of it came at an earlier attempt.
        let mut teller = Teller::new(Manner::Outcome, "x/a").of_import();
        teller.progress(Duration::ZERO, &Progress { bytes: 9, total: 9, resumed: 9 });
        assert_eq!(teller.done(&image, false, false), "x/a (96 MiB) was here already\n");
        assert_eq!(teller.done(&image, false, true), "imported x/a (96 MiB)\n");
    }

    #[test]
    fn a_line_of_a_terminal_stays_one() {
        let mut teller = Teller::new(Manner::Line, &"x/".repeat(99));
        let unit = (1 << 30) - (1 << 20);
        teller.progress(Duration::ZERO, &Progress { bytes: 0, total: unit, resumed: 0 });
        let line = teller.progress(Duration::from_secs(1), &Progress { bytes: 1023 << 10, total: unit, resumed: 0 });
        let line = line.trim_start_matches(CLEAR_LINE);
        assert_eq!(line, "...x/x/x/x/x/x/x/x/x/x/x/x/: 1023 KiB of 1023 MiB (0%), 1023 KiB/s, 17m03s left");
        assert!(line.len() <= 80, "{}", line.len());
    }

    #[test]
    fn times_that_are_left_are_short() {
        for (seconds, wanted) in
            [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_661, "1h01m"), (359_999, "99h59m"), (u64::MAX, "days")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), wanted);
        }
        assert_eq!(
            line("a", Reading { bytes: 9, total: Some(3), speed: Some(0), left: None }),
            "a: 9 B of 3 B (100%), 0 B/s"
        );
    }
}
