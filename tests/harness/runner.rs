//! The parent of the cases: runs each in a cell of its own, kills it at its deadline, shows its output if it failed.
#![expect(clippy::print_stdout, reason = "the end of a test program's report")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::case::{Bed, Case, log_dir};
use crate::cell::{Cell, Links, Share, furnish};
use crate::config::Config;
use crate::cost::{self, Ran};
use crate::emulated::{self, Kind, OnDemand};
use crate::installed;
use crate::pace::{self, Deadline};
use crate::queue::{Place, Queue};
use crate::report::{Report, Row};
use crate::silence::Silence;
use crate::slots::Slots;

/// How the names of cases begin whose programs have deadlines that are not ours to set: critest gives a container a minute to
/// stop, in which a guest may have to boot; kubeadm gives a runtime two seconds to answer, in a machine that is emulated.
const HURRIED: [&str; 3] = ["cri::critest_", "proxy::critest_", installed::TIER];
/// How the names of cases begin that take minutes, whatever else runs, or of which few run at a time (`target/bed/report.json` has
/// them). They come before the others, and so no run ends with such alone: most of them wait, with the processors idle.
const LONG: [&str; 7] =
    ["vm::a_stock_cloud_", "vm::cloud_init_", "cri::critest_in_guests", "kubelet::", "node::", "proxy::", "objects::"];
/// How the names of cases begin that a run leaves out unless it is asked for ignored ones: each computes for minutes, and shows by another
/// distribution, kernel, way of installation, boot or client what one that stays shows too. They run before a release.
const BEFORE_A_RELEASE: [&str; 13] = [
    "cri::critest_in_guests",
    "installed::on_debian_13_",
    "installed::kubeadm_",
    "installed::a_daemonset_",
    "installed::a_release_",
    "iommufd::",
    "kubelet::a_deployment_of_machines_",
    "node::matrix_bridge_dual_",
    "node::matrix_macvlan_dual_",
    "vm::a_cloud_image_",
    "vm::a_stock_cloud_",
    "vm::cloud_init_",
    "vm::twenty_clones_",
];
/// Lines of each daemon's log that are shown of a failed case.
const TAIL: usize = 40;
/// Stands before each daemon's log.
const LOG_MARK: &str = "--- ";
/// Lines of a failed case's own words that are repeated at the end of a run: the first ones and the last ones, which say why.
const REPEATED: (usize, usize) = (2, 4);
/// And so many characters of each. Several failed cases are to fit into what a person sees of a run.
const LINE: usize = 300;

/// Runs the cases that `args` (of a test program) choose, and leaves the reports of what they cost in `reports`.
pub fn run(args: Vec<String>, cases: &'static [Case], reports: &Path) -> Conclusion {
    let mut args = Arguments::from_iter(std::iter::once("bed".to_owned()).chain(args));
    let report = Arc::new(Report::default());
    // Gone with the last trial at the latest.
    let (only, too) = (args.ignored, args.include_ignored);
    let is_run = |case: &&Case| if begins(case, &BEFORE_A_RELEASE) { only || too } else { !only };
    let nodes = Arc::new(OnDemand::of(cases.iter().filter(is_run), Arc::clone(&report)));
    let waiting = cases.iter().filter(|case| Place::of(case).is_some() || Kind::of(case.name).is_some()).count();
    let slots = Arc::new(Slots::of(&mut args, waiting));
    let queue = Arc::new(Queue::default());
    let silence = Silence::watched();
    let trial = |(rank, case): (usize, &'static Case)| {
        let (nodes, report) = (Arc::clone(&nodes), Arc::clone(&report));
        let (slots, queue, silence) = (Arc::clone(&slots), Arc::clone(&queue), silence.clone());
        Trial::test(case.name, move || {
            let place = Place::of(case);
            let _turn = place.map(|place| queue.turn(place));
            let _room = Kind::of(case.name).and_then(|kind| nodes.enter(kind));
            let _slot = if place.is_some() { slots.take_at_once(rank) } else { slots.take(rank) };
            let _running = silence.run(case.name);
            let begun = Instant::now();
            let Ran { outcome, cost } = match Kind::of(case.name) {
                Some(kind) => nodes.run(kind, case),
                None => in_cell(case, Links::Own),
            };
            let failed = outcome.err().map(|failed| format!("{failed:#}"));
            let wall_s = begun.elapsed().as_secs_f64();
            report.add(Row { case: case.name, failed: failed.as_deref().map(own_words), wall_s, cost });
            failed.map_or(Ok(()), |failed| Err(Failed::from(failed)))
        })
        .with_ignored_flag(begins(case, &BEFORE_A_RELEASE))
    };
    let mut order: Vec<_> = cases.iter().collect();
    order.sort_by_key(|case| (Place::of(case).is_none(), Place::of(case), !begins(case, &LONG)));
    let list = args.list;
    let conclusion = libtest_mimic::run(&args, order.into_iter().enumerate().map(trial).collect());
    drop(nodes);
    print!("{report}");
    if !list && let Err(failed) = report.write(reports) {
        println!("no report: {failed:#}");
    }
    conclusion
}

/// Whether the name of `case` begins in one of these ways.
fn begins(case: &Case, ways: &[&str]) -> bool {
    ways.iter().any(|begin| case.name.starts_with(begin))
}

/// What programs have that keep deadlines of their own, beside other cases.
fn share(case: &Case) -> Share {
    if begins(case, &HURRIED) { Share::Fourfold } else { Share::Even }
}

/// Of what is shown of a failed case, what is not a daemon's log; no more than its beginning and its end.
fn own_words(shown: &str) -> String {
    let lines: Vec<String> = shown
        .lines()
        .take_while(|line| !line.starts_with(LOG_MARK))
        .map(|line| line.chars().take(LINE).collect())
        .collect();
    let (first, last) = REPEATED;
    if lines.len() <= first + last {
        return lines.join("\n");
    }
    let (begin, end) = (&lines[..first], &lines[lines.len() - last..]);
    format!("{}\n...\n{}", begin.join("\n"), end.join("\n"))
}

/// Runs the cases that the machine outside asks this one, an emulated node, to run.
///
/// # Errors
/// When there is no machine outside.
pub fn serve(cases: &'static [Case]) -> Result<()> {
    emulated::serve(|name| match named(name, cases) {
        Ok(case) => in_cell(case, Kind::of(name).map_or(Links::Own, |kind| kind.links)),
        Err(failed) => Ran::failed(failed),
    })
}

/// Runs `bed WORDS... DIR` in a cell with this process's own output, as the demo does.
///
/// # Errors
/// When it fails, or leaves something on the machine.
pub fn in_view(words: &[&str], deadline: Duration) -> Result<()> {
    let cell = Cell::create(Links::Own, Share::Even)?;
    let child = cell.command(words)?.stdin(Stdio::null()).spawn().context("failed to start the cell")?;
    let outcome = outcome(end_of(child, deadline));
    let logs = if outcome.is_err() { tails(&log_dir(cell.dir())) } else { String::new() };
    cell.remove(false)?;
    outcome.map_err(|failed| anyhow!("{failed:#}\n{logs}"))
}

fn in_cell(case: &Case, links: Links) -> Ran {
    match Cell::create(links, share(case)) {
        Ok(cell) => in_this(cell, case),
        Err(failed) => Ran::failed(failed),
    }
}

fn in_this(cell: Cell, case: &Case) -> Ran {
    let output = cell.dir().join("output");
    let outcome = started(&cell, case, &output).and_then(|child| outcome(end_of(child, case.deadline)));
    let said = fs::read_to_string(&output).unwrap_or_default();
    let logs = if outcome.is_err() { tails(&log_dir(cell.dir())) } else { String::new() };
    let keep = outcome.is_err() && Config::from_env().keep;
    let kept = if keep { format!("kept: {}\n", cell.dir().display()) } else { String::new() };
    let cost = cell.cost();
    let removed = cell.remove(keep);
    let outcome = outcome.map_err(|failed| anyhow!("{failed:#}\n{said}{logs}{kept}")).and(removed).map(|()| said);
    match (outcome, cost) {
        (Ok(_), Err(failed)) => Ran::failed(failed),
        (outcome, cost) => Ran { outcome, cost: cost.unwrap_or_default() },
    }
}

fn started(cell: &Cell, case: &Case, output: &Path) -> Result<Child> {
    let output = fs::File::create(output)?;
    let mut command = cell.command(&["case", case.name])?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.spawn().context("failed to start the cell")
}

/// The child's side: furnishes the cell and runs the case.
///
/// # Errors
/// Whatever the case fails with.
pub fn case(name: &str, dir: &Path, cases: &[Case]) -> Result<()> {
    in_bed(dir, name, named(name, cases)?.run)
}

fn named<'a>(name: &str, cases: &'a [Case]) -> Result<&'a Case> {
    cases.iter().find(|case| case.name == name).with_context(|| format!("no case `{name}`"))
}

/// Runs `work` in the cell that this process is in.
///
/// # Errors
/// Whatever it fails with.
pub fn inside(dir: &Path, work: impl FnOnce(&Bed) -> Result<()>) -> Result<()> {
    in_bed(dir, "", work)
}

fn in_bed(dir: &Path, case: &str, work: impl FnOnce(&Bed) -> Result<()>) -> Result<()> {
    let config = Config::from_env();
    furnish(dir, &config).context("failed to furnish the cell")?;
    let done = work(&Bed { case: case.to_owned(), config, dir: dir.to_owned() });
    done.and(cost::leave(dir))
}

fn end_of(mut child: Child, deadline: Duration) -> Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let (sender, ended) = mpsc::channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait()));
    let status = pace::receive(&ended, Deadline::within(deadline));
    if status.is_err() {
        // `unshare` takes the whole cell with it.
        kill(pid, Signal::SIGKILL).context("failed to kill the cell")?;
    }
    let _told = waiter.join();
    match status {
        Ok(status) => status.context("failed to wait for the cell"),
        Err(_) => bail!("killed at its deadline of {} s", deadline.as_secs()),
    }
}

fn outcome(status: Result<ExitStatus>) -> Result<()> {
    let status = status?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => bail!("exit code {code}"),
        (None, signal) => bail!("ended by signal {signal:?}"),
    }
}

fn tails(logs: &Path) -> String {
    let mut shown = String::new();
    let mut files: Vec<_> = fs::read_dir(logs).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let text = fs::read(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let _infallible = writeln!(shown, "{LOG_MARK}{}", file.display());
        for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
            let _infallible = writeln!(shown, "{line}");
        }
    }
    shown
}
