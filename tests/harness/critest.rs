//! critest, the conformance tests of CRI, as cri-tools release them: what it has, and what came of what it ran.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::case::Bed;
use crate::command::{Ended, command, finish, run as run_program};
use crate::pace::at_worst;

/// What came of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// In critest's words: `passed`, `failed`, `skipped`, ...
    pub state: String,
    /// Why, unless it passed.
    pub said: String,
}

impl Outcome {
    /// Whether it passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.state == "passed"
    }

    /// Whether critest left it out, by its own judgement or since it was not asked for.
    #[must_use]
    pub fn skipped(&self) -> bool {
        self.state == "skipped"
    }
}

/// A run of critest that came to its end.
#[derive(Debug)]
pub struct Ran {
    /// By their full names.
    pub specs: BTreeMap<String, Outcome>,
    /// How the program ended.
    pub ended: Ended,
}

/// Names of all specs that it has, but for benchmarks, which are none.
///
/// # Errors
/// When it does not say.
pub fn specs(bed: &Bed) -> Result<Vec<String>> {
    let report = bed.dir.join("specs.json");
    let mut critest = command(bed.config.peer("critest")?, ["--ginkgo.dry-run", "--ginkgo.json-report"]);
    run_program(critest.arg(&report).args(["--runtime-endpoint", "unix:///nobody"]))?;
    Ok(read(&report)?.into_keys().filter(|name| !name.contains("benchmark about")).collect())
}

/// Runs it against a socket. `name` is that of its report; `images` are those that it is to take in place of some of its own.
///
/// # Errors
/// When it does not come to its end, or leaves no report.
pub fn run(bed: &Bed, name: &str, socket: &Path, args: &[&OsStr], images: &Value, deadline: Duration) -> Result<Ran> {
    let (report, named) = (bed.logs().join(format!("{name}.json")), bed.dir.join(format!("{name}-images.yaml")));
    // JSON is YAML.
    fs::write(&named, images.to_string())?;
    let endpoint = format!("unix://{}", socket.display());
    let mut critest =
        command(bed.config.peer("critest")?, ["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint]);
    // Its own hour, and its five minutes for a call, may be over before our deadline.
    let longest = at_worst(deadline).as_secs();
    for timeout in ["ginkgo.timeout", "runtime-service-timeout", "image-service-timeout"] {
        critest.arg(format!("--{timeout}={longest}s"));
    }
    critest.arg("--ginkgo.no-color").args(args);
    critest.arg("--test-images-file").arg(&named).arg("--ginkgo.json-report").arg(&report);
    let ended = finish(&mut critest, deadline)?;
    let specs = read(&report).with_context(|| format!("critest: {}", ended.stdout))?;
    Ok(Ran { specs, ended })
}

/// A focus on the specs whose names begin so, after the word that all begin with.
#[must_use]
pub fn focus(beginnings: &[&str]) -> String {
    let escaped =
        |spec: &&str| "\\.|[](){}*+?^$".chars().fold((*spec).to_owned(), |text, c| text.replace(c, &format!("\\{c}")));
    format!("\\[k8s.io\\] ({})", beginnings.iter().map(escaped).collect::<Vec<_>>().join("|"))
}

fn read(report: &Path) -> Result<BTreeMap<String, Outcome>> {
    let report: Value = serde_json::from_slice(&fs::read(report).context("critest wrote no report")?)?;
    let reports = report.pointer("/0/SpecReports").and_then(Value::as_array).context("a report without specs")?;
    let specs = reports.iter().filter(|spec| spec["LeafNodeType"] == "It").map(spec).collect::<BTreeMap<_, _>>();
    ensure!(!specs.is_empty(), "a report without specs");
    Ok(specs)
}

fn spec(spec: &Value) -> (String, Outcome) {
    let texts = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().chain([&spec["LeafNodeText"]]);
    let name = texts.filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (name, Outcome { state: text(&spec["State"]), said: text(&spec["Failure"]["Message"]) })
}
