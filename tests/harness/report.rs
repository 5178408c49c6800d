//! The report of a run: what each case cost and how it ended, for people at the end of the output, and for programs in two files.
//!
//! `report.json` has all that was measured. `junit.xml` is what CI servers show; its times are wall time, and the rest are properties.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use quick_junit::{NonSuccessKind, Property, Report as Junit, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::cost::{Cost, Wait};

/// So many cases are named because they cost most.
const DEAREST: usize = 20;

/// How one case went.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    /// Why it failed, if it did.
    pub(crate) failed: Option<String>,
    /// Seconds from its begin to its end, without the wait for its turn.
    pub(crate) wall_s: f64,
    #[serde(flatten)]
    pub(crate) cost: Cost,
}

/// An emulator that served several cases.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) tier: &'static str,
    /// Until it took its first case.
    pub(crate) boot_s: f64,
    /// All that its emulator has used.
    pub(crate) processor_s: f64,
}

#[derive(Debug, Default, Serialize)]
struct Outcomes {
    cases: Vec<Row>,
    machines: Vec<Machine>,
}

/// What has run so far.
#[derive(Debug, Default)]
pub(crate) struct Report(Mutex<Outcomes>);

impl Report {
    /// Notes how a case went.
    pub(crate) fn add(&self, row: Row) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cases.push(row);
    }

    /// Notes what a node cost that is over.
    pub(crate) fn add_machine(&self, machine: Machine) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).machines.push(machine);
    }

    /// Writes both files into `dir`.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let json = serde_json::to_vec_pretty(&*outcomes)?;
        for (name, text) in [("report.json", json), ("junit.xml", junit(&outcomes.cases).to_string()?.into_bytes())] {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        }
        Ok(())
    }
}

fn junit(rows: &[Row]) -> Junit {
    let mut report = Junit::new("bed");
    let mut suites: BTreeMap<&str, TestSuite> = BTreeMap::new();
    for row in rows {
        let (tier, name) = row.case.split_once("::").unwrap_or((row.case, row.case));
        let status = row.failed.as_ref().map_or_else(TestCaseStatus::success, |why| {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why.as_str());
            status
        });
        let mut case = TestCase::new(name, status);
        case.set_classname(tier).set_time(Duration::from_secs_f64(row.wall_s));
        case.add_property(Property::new("processor_s", format!("{:.1}", row.cost.processor_s)));
        case.add_property(Property::new("peak_mib", row.cost.peak_mib.to_string()));
        for (wait, seconds) in &row.cost.waits {
            case.add_property(Property::new(format!("wait_{}_s", wait.name()), format!("{seconds:.1}")));
        }
        suites.entry(tier).or_insert_with(|| TestSuite::new(tier)).add_test_case(case);
    }
    report.add_test_suites(suites.into_values());
    report
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tiers: BTreeMap<&str, Sum> = BTreeMap::new();
        for row in &outcomes.cases {
            let tier = row.case.split("::").next().unwrap_or(row.case);
            tiers.entry(tier).or_default().add(row);
        }
        for machine in &outcomes.machines {
            writeln!(
                out,
                "node of {}: boot {:.0} s, {:.0} s of processors in all",
                machine.tier, machine.boot_s, machine.processor_s
            )?;
        }
        for (tier, sum) in &tiers {
            writeln!(out, "tier {tier}: {sum}")?;
        }
        let mut dearest: Vec<&Row> = outcomes.cases.iter().collect();
        dearest.sort_by(|one, other| other.wall_s.total_cmp(&one.wall_s));
        for row in dearest.into_iter().take(DEAREST) {
            writeln!(out, "dearest {}: {:.0} s, {}", row.case, row.wall_s, shown(&row.cost))?;
        }
        // At the very end: of a long output many a viewer shows no more.
        for row in outcomes.cases.iter().filter(|row| row.failed.is_some()) {
            writeln!(out, "failed {}: {}", row.case, row.failed.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Of one tier.
#[derive(Debug, Default)]
struct Sum {
    cases: usize,
    wall_s: f64,
    cost: Cost,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        self.cases += 1;
        self.wall_s += row.wall_s;
        self.cost.processor_s += row.cost.processor_s;
        self.cost.peak_mib = self.cost.peak_mib.max(row.cost.peak_mib);
        for (wait, seconds) in &row.cost.waits {
            *self.cost.waits.entry(*wait).or_default() += seconds;
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} cases, {:.0} s one after the other, {}", self.cases, self.wall_s, shown(&self.cost))
    }
}

fn shown(cost: &Cost) -> String {
    let mut shown = format!("{:.0} s of processors, {} MiB", cost.processor_s, cost.peak_mib);
    for (wait, seconds) in cost.waits.iter().filter(|(_, seconds)| **seconds >= 0.5) {
        // Writing to a string does not fail.
        let _infallible = write!(shown, ", {} {seconds:.0} s", wait.name());
    }
    shown
}

impl Wait {
    const fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Node => "node",
            Self::Build => "build",
            Self::Program => "program",
            Self::Event => "event",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let report = Report::default();
        let cost = Cost { processor_s: 4.25, peak_mib: 300, waits: BTreeMap::from([(Wait::Guest, 3.5)]) };
        report.add(Row { case: "vm::boots", failed: None, wall_s: 6.0, cost: cost.clone() });
        report.add(Row { case: "vm::ends", failed: Some("no end <yet>".to_owned()), wall_s: 9.0, cost });
        report.add_machine(Machine { tier: "sriov::", boot_s: 9.0, processor_s: 90.0 });
        report
    }

    #[test]
    fn people_read_tiers_the_dearest_and_last_failures() {
        insta::assert_snapshot!(report(), @r"
        node of sriov::: boot 9 s, 90 s of processors in all
        tier vm: 2 cases, 15 s one after the other, 8 s of processors, 300 MiB, guest 7 s
        dearest vm::ends: 9 s, 4 s of processors, 300 MiB, guest 4 s
        dearest vm::boots: 6 s, 4 s of processors, 300 MiB, guest 4 s
        failed vm::ends: no end <yet>
        ");
    }

    #[test]
    fn programs_read_both_files() {
        let dir = tempfile::tempdir().unwrap();
        report().write(&dir.path().join("new")).unwrap();

        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("new/report.json")).unwrap()).unwrap();
        assert_eq!(json["cases"][0]["processor_s"], 4.25);
        assert_eq!(json["cases"][0]["waits"]["guest"], 3.5);
        assert_eq!(json["machines"][0]["tier"], "sriov::");
        let xml = fs::read_to_string(dir.path().join("new/junit.xml")).unwrap();
        assert!(xml.contains(r#"<testsuite name="vm" tests="2" skipped="0" errors="0" failures="1""#), "{xml}");
        assert!(xml.contains(r#"<testcase name="ends" classname="vm" time="9.000""#), "{xml}");
        assert!(xml.contains("no end &lt;yet&gt;"), "{xml}");
    }
}
