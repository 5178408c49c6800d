//! Rows of a report: to the terminal as they come, and to a file for programs.

#![expect(clippy::print_stdout, reason = "the table is what the command is for")]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The same work done both ways, right after one another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) ours: f64,
    pub(super) baseline: f64,
}

/// What was measured of one promise.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Highest ratio that keeps the promise; rows without one explain another and are only printed.
    pub(super) target: Option<f64>,
    pub(super) pairs: Vec<Pair>,
}

/// One row as programs read it: `ratio` is `ours` / `baseline`, and is to be at most `target`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    ours: f64,
    baseline: f64,
    unit: String,
    ratio: f64,
    target: f64,
}

/// The rows so far.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Line>);

impl Pair {
    fn ratio(self) -> f64 {
        self.ours / self.baseline
    }
}

impl Row {
    /// The pairs, by ratio, and the middle one.
    fn sorted(&self) -> Result<(Vec<Pair>, Pair)> {
        let mut pairs = self.pairs.clone();
        ensure!(pairs.len() % 2 == 1, "row `{}` has {} pairs: an even number has no middle", self.name, pairs.len());
        ensure!(
            pairs.iter().all(|pair| pair.ours > 0.0 && pair.baseline > 0.0),
            "row `{}` took no time: {pairs:?}",
            self.name
        );
        pairs.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        let middle = *pairs.get(pairs.len() / 2).context("no pairs")?;
        Ok((pairs, middle))
    }
}

impl Report {
    /// Prints a row, and keeps it if it is a promise.
    ///
    /// # Errors
    /// When the row has no middle.
    pub(super) fn add(&mut self, row: Row) -> Result<()> {
        if self.0.is_empty() {
            println!(
                "{:<58} {:>9} {:>9} {:<4} {:>6} {:>6}      {:>6} {:>6} pairs  medians apart",
                "row", "ours", "baseline", "unit", "ratio", "target", "least", "most"
            );
        }
        let (pairs, middle) = row.sorted()?;
        let ends = [pairs.first(), pairs.last()].map(|pair| pair.map_or(0.0, |pair| pair.ratio()));
        let target = row.target.map_or("-".to_owned(), |target| format!("{target:.2}"));
        let verdict = match row.target {
            Some(target) if middle.ratio() > target => "MISS",
            Some(_) => "ok",
            None => "",
        };
        println!(
            "{:<58} {:>9.1} {:>9.1} {:<4} {:>6.2} {target:>6} {verdict:<4} {:>6.2} {:>6.2} {:>5}  {:.1} {:.1}",
            row.name,
            middle.ours,
            middle.baseline,
            row.unit,
            middle.ratio(),
            ends[0],
            ends[1],
            pairs.len(),
            super::p50(pairs.iter().map(|pair| pair.ours).collect())?,
            super::p50(pairs.iter().map(|pair| pair.baseline).collect())?,
        );
        if let Some(target) = row.target {
            self.0.push(Line {
                name: row.name.to_owned(),
                ours: middle.ours,
                baseline: middle.baseline,
                unit: row.unit.to_owned(),
                ratio: middle.ratio(),
                target,
            });
        }
        Ok(())
    }

    /// Writes the promises as an array.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_string_pretty(&self.0)? + "\n")
            .with_context(|| format!("failed to write {}", path.display()))
    }

    /// Reads what [`Report::write`] wrote.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("no report {}", path.display()))?;
        Ok(Self(serde_json::from_str(&text)?))
    }

    /// Whether any target was missed.
    pub(super) fn has_missed(&self) -> bool {
        self.0.iter().any(|line| line.ratio > line.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: f64, pairs: &[(f64, f64)]) -> Row {
        let pairs = pairs.iter().map(|&(ours, baseline)| Pair { ours, baseline }).collect();
        Row { name: "row", unit: "us", target: Some(target), pairs }
    }

    #[test]
    fn the_pair_of_the_median_ratio_is_reported_and_judged() {
        // Ratios 4, 1.5 and 2: a slow minute of the machine is in both numbers of a pair.
        let pairs = [(40.0, 10.0), (30.0, 20.0), (200.0, 100.0)];
        let mut report = Report::default();
        report.add(row(1.9, &pairs)).unwrap();

        assert_eq!((report.0[0].ours, report.0[0].baseline, report.0[0].ratio), (200.0, 100.0, 2.0));
        assert!(report.has_missed());
        let mut report = Report::default();
        report.add(row(2.0, &pairs)).unwrap();
        assert!(!report.has_missed());
    }

    #[test]
    fn rows_without_a_middle_or_without_time_are_refused() {
        for pairs in [&[][..], &[(1.0, 1.0), (2.0, 1.0)], &[(0.0, 1.0)], &[(1.0, -1.0)], &[(f64::NAN, 1.0)]] {
            assert!(Report::default().add(row(1.0, pairs)).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn a_written_report_has_the_six_fields() {
        let mut report = Report::default();
        report.add(row(3.0, &[(1.0, 2.0)])).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        report.write(&path).unwrap();

        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let expected = serde_json::json!([{"name": "row", "ours": 1.0, "baseline": 2.0, "unit": "us", "ratio": 0.5, "target": 3.0}]);
        assert_eq!(json, expected);
        assert!(!Report::read(&path).unwrap().has_missed());
    }
}
