//! `tapmanager sriov`: asks the daemon about virtual functions, and prints for people what it says.
//!
//! `list` answers without a daemon as well: from sysfs and the notes of claims, and says so.

use std::io::Write;
use std::path::Path;

use proto::tap::{PfSummary, VfDetail, VfHolder, VfPage, VfRequest, VfSummary};
use serde_json::json;
use sriov::Sysfs;

use super::cli::Common;
use super::cli::sriov::{Release, Sriov};
use super::error::{ToolError, tell};
use super::node::Node;
use super::text::{collected, line, printable, table};
use super::{Verdict, json, show};
use crate::config::Config;
use crate::daemon::{DEV, SYSFS};
use crate::vf::{ClaimNotes, survey};

/// Runs a tool; `out` gets its result.
pub(super) fn run(tool: Sriov, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    match tool {
        Sriov::List(common) => {
            let (page, daemon) = list(&common.config()?)?;
            let VfPage { pfs, vfs, trouble, more: _ } = &page;
            let json = || json!({"daemon": daemon, "pfs": pfs, "vfs": vfs, "trouble": trouble});
            show(&common, out, json, || listed(&page))
        }
        Sriov::Explain(of) => {
            let detail = Node::of(&of.common.config()?).vf(VfRequest::Explain { vf: of.vf })?;
            explained(&of.common, out, &detail)
        }
        Sriov::Claim(claim) => {
            let (claim, common) = claim.request();
            let detail = Node::of(&common.config()?).vf(VfRequest::Claim(claim))?;
            explained(&common, out, &detail)
        }
        Sriov::Release(Release { vf, force, common }) => changed(&common, out, VfRequest::Release { vf, force }),
        Sriov::Repair(common) => changed(&common, out, VfRequest::Repair),
    }
}

/// Also whether a daemon said it.
fn list(config: &Config) -> Result<(VfPage, bool), ToolError> {
    match Node::of(config).vfs() {
        Ok(page) => Ok((page, true)),
        Err(error) if error.is_nobody() => {
            tell(&format!("tapmanager: {}; this is what sysfs and the notes of claims have\n", error.line()));
            let sysfs = Sysfs::new(Path::new(SYSFS), Path::new(DEV));
            let page = survey(&sysfs, &ClaimNotes::peek(&config.state_dir)).map_err(ToolError::Sriov)?;
            Ok((page, false))
        }
        Err(error) => Err(error),
    }
}

fn changed(common: &Common, out: &mut dyn Write, request: VfRequest) -> Result<Verdict, ToolError> {
    let report = Node::of(&common.config()?).vf_report(request)?;
    show(common, out, || json::whole(&report), || collected(&report))
}

fn explained(common: &Common, out: &mut dyn Write, detail: &VfDetail) -> Result<Verdict, ToolError> {
    show(
        common,
        out,
        || json::whole(detail),
        || {
            let VfDetail { summary, explanation } = detail;
            let mut text = format!("{}:\n", summary.vf);
            if let Some(VfHolder { pod: Some((namespace, name)), .. }) = &summary.claim {
                line(&mut text, &format!("  of pod {namespace}/{name}"));
            }
            for reason in explanation {
                line(&mut text, &format!("  {reason}"));
            }
            text
        },
    )
}

fn listed(VfPage { pfs, vfs, trouble, more: _ }: &VfPage) -> String {
    let heads = ["PF", "NETDEV", "DRIVER", "TOTAL", "ENABLED", "USED", "FAILED", "AUTOPROBE"].map(str::to_owned);
    let mut text = table(&std::iter::once(heads).chain(pfs.iter().map(of_pf)).collect::<Vec<_>>());
    if !vfs.is_empty() {
        let heads = ["VF", "PF", "NUMBER", "DRIVER", "NETDEV", "GROUP", "VFIO", "STEP", "OWNER"].map(str::to_owned);
        text.push('\n');
        text.push_str(&table(&std::iter::once(heads).chain(vfs.iter().map(of_vf)).collect::<Vec<_>>()));
    }
    for trouble in trouble {
        line(&mut text, &format!("trouble: {trouble}"));
    }
    text
}

fn of_pf(pf: &PfSummary) -> [String; 8] {
    let PfSummary { pf, netdevs, driver, total, enabled, used, failed, autoprobe } = pf;
    let autoprobe = autoprobe.map_or("-", |on| if on { "on" } else { "off" }).to_owned();
    let numbers = [total, enabled, used].map(ToString::to_string);
    let [total, enabled, used] = numbers;
    [pf.to_string(), names(netdevs), named(driver.as_deref()), total, enabled, used, failed.to_string(), autoprobe]
}

fn of_vf(vf: &VfSummary) -> [String; 9] {
    let VfSummary { vf, pf, number, driver, netdevs, group, vfio, claim } = vf;
    let owner = claim.as_ref().map(|VfHolder { owner, pod, step: _ }| match pod {
        Some((namespace, name)) => format!("{namespace}/{name} ({owner})"),
        None => owner.clone(),
    });
    [
        vf.to_string(),
        pf.to_string(),
        number.to_string(),
        named(driver.as_deref()),
        names(netdevs),
        group.map_or_else(|| "-".to_owned(), |group| group.to_string()),
        if *vfio { "yes" } else { "-" }.to_owned(),
        named(claim.as_ref().map(|claim| claim.step.name())),
        named(owner.as_deref()),
    ]
}

fn names(netdevs: &[String]) -> String {
    if netdevs.is_empty() { named(None) } else { printable(&netdevs.join(",")) }
}

fn named(name: Option<&str>) -> String {
    printable(name.unwrap_or("-"))
}

#[cfg(test)]
mod tests;
