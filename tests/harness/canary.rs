//! Secrets of a case that are looked for where they must not be: in files, in processes, and in what is said.
//!
//! Each is found as it is, and as base64, wherever in a longer text it stands. `grep` does the searching: disks are long.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::command::{TOOL_DEADLINE, command, finish};

/// A text that is nowhere but where it was put.
#[derive(Debug, Clone, Copy)]
pub struct Canary {
    /// What it was.
    pub secret: &'static str,
    /// Letters and digits alone, so that nothing has to be escaped on its way.
    pub text: &'static str,
}

/// One that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What it was.
    pub secret: &'static str,
    /// A file's path, a process, or who said it.
    pub place: String,
}

/// The search, with what it found so far.
#[derive(Debug)]
pub struct Search {
    needles: Vec<(&'static str, String)>,
    found: BTreeSet<Finding>,
}

impl Search {
    /// A search for all of these.
    #[must_use]
    pub fn new(canaries: &[Canary]) -> Self {
        let forms = |canary: &Canary| {
            let packed = (0..3).map(|before| packed(canary.text, before));
            packed.chain([canary.text.to_owned()]).map(|form| (canary.secret, form)).collect::<Vec<_>>()
        };
        Self { needles: canaries.iter().flat_map(forms).collect(), found: BTreeSet::new() }
    }

    /// Looks through what somebody said.
    pub fn said(&mut self, who: &str, what: &str) {
        for (secret, form) in &self.needles {
            if what.contains(form.as_str()) {
                self.found.insert(Finding { secret, place: who.to_owned() });
            }
        }
    }

    /// Looks through all files below a directory; none is fine.
    ///
    /// # Errors
    /// When the directory cannot be searched.
    pub fn files(&mut self, below: &Path) -> Result<()> {
        if !below.exists() {
            return Ok(());
        }
        // Text or not, recursively, of each match the file and the match, and no word on files that go meanwhile.
        let mut grep = command("grep", ["-raoFsZ"]);
        for (_, form) in &self.needles {
            grep.args(["-e", form]);
        }
        let ended = finish(grep.arg(below), TOOL_DEADLINE)?;
        for line in ended.stdout.lines() {
            let (path, form) = line.split_once('\0').with_context(|| format!("grep said `{line}`"))?;
            let (secret, _) = self.needles.iter().find(|(_, needle)| needle == form).context("grep found another")?;
            self.found.insert(Finding { secret, place: path.to_owned() });
        }
        Ok(())
    }

    /// Looks through the words and the environments of all processes of the cell.
    ///
    /// # Errors
    /// When there are no processes to be seen.
    pub fn processes(&mut self) -> Result<()> {
        let mut seen = 0;
        for entry in fs::read_dir("/proc")? {
            let process = entry?.path();
            for part in ["cmdline", "environ"] {
                // One that ended meanwhile has neither.
                let Ok(bytes) = fs::read(process.join(part)) else { continue };
                let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
                self.said(&format!("{part} of {}", program.trim()), &String::from_utf8_lossy(&bytes));
                seen += 1;
            }
        }
        ensure!(seen > 0, "no process is to be seen in /proc");
        Ok(())
    }

    /// What was found so far.
    #[must_use]
    pub fn found(&self) -> &BTreeSet<Finding> {
        &self.found
    }
}

/// What base64 of a longer text shows of this one, which stands `before` bytes behind a border of three bytes.
fn packed(text: &str, before: usize) -> String {
    let whole = STANDARD_NO_PAD.encode([vec![0; before], text.as_bytes().to_vec()].concat());
    // Characters at the ends hold bits of what is beside it.
    let (first, last) = ((before * 8).div_ceil(6), (before + text.len()) * 8 / 6);
    whole.get(first..last).unwrap_or_default().to_owned()
}
