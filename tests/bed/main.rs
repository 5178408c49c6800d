//! `bed`: the test bed's program. Started by the Makefile; starts itself again inside the cells.
//!
//! ```text
//! bed [TEST OPTIONS] [FILTER]   runs the cases whose name has FILTER in it, e.g. `net::`
//! bed demo                      the whole chain once, in view
//! bed bench [--strict] [GROUP]  measures, prints a table, writes a report
//! bed soak                      a thousand pods while daemons are killed
//! ```
//! Inside only: `enter`, `enter-with-links`, `case`, `demo-inside`, `soak-inside`, `get`, `storm`, `node-agent` (in the emulated node), `installed-agent` (in the machine of the tier `installed`), `doomed-tapmanager`, which
//! dies at a step, `fake-emulator` and `give-away`, which stand where QEMU would, and `convert -n`, which stands where `qemu-img` would.
#![expect(clippy::print_stderr, reason = "a program for the terminal")]

mod bench;
mod cri;
mod demo;
mod fresh_tapmanager;
mod image;
mod installed;
mod kubelet;
mod mapping;
mod matrix;
mod net;
mod node;
mod objects;
mod orphans;
mod own;
mod proxy;
mod restart;
mod seed;
mod soak;
mod sriov;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use tests::case::Case;
use tests::cell::Links;
use tests::{cell, guest, handoff, runner, taken};

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    own::CASES
        .iter()
        .copied()
        .chain(net::cases())
        .chain(matrix::cases())
        .chain(node::cases())
        .chain(sriov::cases())
        .chain(vm::cases())
        .chain(restart::cases())
        .chain(orphans::CASES.iter().copied())
        .chain(soak::CASES.iter().copied())
        .chain(fresh_tapmanager::CASES.iter().copied())
        .chain(image::cases())
        .chain(seed::cases())
        .chain(cri::cases())
        .chain(kubelet::cases())
        .chain(proxy::cases())
        .chain(installed::cases())
        .chain(mapping::CASES.iter().copied())
        .chain(objects::cases())
        .collect()
});

/// As well as those that a bench has in an emulated node.
static ALL: LazyLock<Vec<Case>> = LazyLock::new(|| CASES.iter().copied().chain(bench::IN_NODE).collect());

fn main() -> ExitCode {
    dispatch(std::env::args().skip(1).collect()).unwrap_or_else(|failed| {
        eprintln!("{failed:#}");
        ExitCode::FAILURE
    })
}

fn dispatch(args: Vec<String>) -> Result<ExitCode> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [cell::ENTER, dir, ..] => cell::enter(Links::Own, Path::new(dir), args.get(2..).unwrap_or_default())?,
        [cell::ENTER_WITH_LINKS, dir, ..] => {
            cell::enter(Links::Machine, Path::new(dir), args.get(2..).unwrap_or_default())?;
        }
        ["case", name, dir] => runner::case(name, Path::new(dir), &ALL)?,
        ["bench", words @ ..] => return bench::bench(words),
        ["demo"] => runner::in_view(&["demo-inside"], demo::DEADLINE)?,
        ["soak"] => soak::in_view()?,
        ["soak-inside", dir] => soak::inside(Path::new(dir))?,
        ["demo-inside", dir] => runner::inside(Path::new(dir), demo::run)?,
        ["installed-agent"] => tests::installed::serve()?,
        ["node-agent"] => runner::serve(&ALL)?,
        ["get", socket, token] => handoff::get(Path::new(socket), token)?,
        ["storm", socket] => handoff::storm(Path::new(socket))?,
        ["convert", "-n", ..] => vm::roots::half_a_copy()?,
        [vm::sockets::CONNECT, socket] => vm::sockets::connect(Path::new(socket))?,
        [net::DOOMED, step, vmwrapper, plugins] => net::serve_until(step, vmwrapper, plugins)?,
        [guest::FAKE_EMULATOR, ..] => guest::emulate(&args)?,
        [taken::GIVE_AWAY, ..] => taken::give_away(&args)?,
        _ => return Ok(runner::run(args, &CASES, &reports()?).exit_code()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a run leaves its reports: beside this program.
fn reports() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("this program is nowhere")?.to_owned())
}
