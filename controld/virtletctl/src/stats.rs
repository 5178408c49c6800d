//! `stats` and `top`: what machines use. A share of CPU is what they used between two looks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use proto::cri::{ContainerStats, PodSandboxStats, UInt64Value};
use serde_json::{Value, json};

use super::cli::{Form, Scope, Stats, Top, Within};
use super::client::Client;
use super::error::{CtlError, Line, none_of};
use super::find::Node;
use super::tell::tell;
use super::text::{shown, size, table};
use super::{document, ps};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Puts the cursor into the corner of an empty terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What one machine uses.
#[derive(Debug)]
struct Row {
    namespace: String,
    name: String,
    pod: String,
    /// In thousandths of a CPU; unknown at the first look.
    milli_cpus: Option<u64>,
    memory: u64,
    limit: Option<u64>,
    /// Received by the guest, and sent.
    net: (u64, u64),
    disk: u64,
}

/// The machines that a command is about.
#[derive(Debug)]
struct Meant<'a> {
    scope: &'a Scope,
    /// By their pods' ids, as the user wrote them; `None` if nobody named any.
    named: Option<BTreeMap<String, String>>,
}

/// Like `kubectl top pod`.
pub(super) async fn top(client: &Client, wanted: &Top, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    let printed = top_of(client, wanted, out, &mut failed).await;
    failed.extend(printed.err());
    none_of(failed)
}

async fn top_of(
    client: &Client,
    wanted: &Top,
    out: &mut (dyn Write + Send),
    failed: &mut Vec<CtlError>,
) -> Result<(), CtlError> {
    let mut meant = Meant::find(client, wanted, failed).await?;
    let before = meant.look(client, failed).await?;
    if meant.is_nobody() {
        return Ok(());
    }
    tokio::time::sleep(PERIOD).await;
    let rows = rows(&before, &meant.look(client, failed).await?);
    let text = print(&rows, wanted.output.form(), |rows| {
        let cells = rows.iter().map(|row| {
            let cpu = row.milli_cpus.map(|milli| format!("{milli}m")).unwrap_or_default();
            [row.namespace.clone(), row.name.clone(), cpu, format!("{}Mi", row.memory >> 20)]
        });
        table(["NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"], &cells.collect::<Vec<_>>())
    })?;
    Ok(out.write_all(text.as_bytes())?)
}

/// Like `docker stats`: again and again, until the user has seen enough, or no machine is left of those that were named.
pub(super) async fn stats(client: &Client, wanted: &Stats, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    let printed = stats_of(client, wanted, out, &mut failed).await;
    failed.extend(printed.err());
    none_of(failed)
}

async fn stats_of(
    client: &Client,
    wanted: &Stats,
    out: &mut (dyn Write + Send),
    failed: &mut Vec<CtlError>,
) -> Result<(), CtlError> {
    let form = wanted.top.output.form();
    let clears = !wanted.no_stream && form.is_none_or(|form| form == Form::Wide) && io::stdout().is_terminal();
    let mut meant = Meant::find(client, &wanted.top, failed).await?;
    let mut before = meant.look(client, failed).await?;
    let mut told = String::new();
    while !meant.is_nobody() {
        tokio::time::sleep(PERIOD).await;
        let now = meant.look(client, failed).await?;
        if meant.is_nobody() {
            break;
        }
        let text = print(&rows(&before, &now), form, as_docker)?;
        write!(out, "{}{text}", if clears { CLEAR } else { "" })?;
        out.flush()?;
        if wanted.no_stream {
            break;
        }
        // An empty terminal has lost what was told before.
        if !clears {
            told.clear();
        }
        told.extend(failed.drain(..).map(|error| format!("{}\n", Line(&error))));
        tell(&told);
        before = now;
    }
    Ok(())
}

impl<'a> Meant<'a> {
    /// Finds those that are named. One that is not there is no reason to leave the others out.
    async fn find(client: &Client, wanted: &'a Top, failed: &mut Vec<CtlError>) -> Result<Self, CtlError> {
        let scope = &wanted.scope;
        if wanted.pods.is_empty() {
            return Ok(Self { scope, named: None });
        }
        let node = Node::read(client).await?.within(&Within { namespace: scope.namespace.clone() });
        let names = node.names(wanted.pods.clone())?;
        // `top pods` names none.
        if names.is_empty() {
            return Ok(Self { scope, named: None });
        }
        let mut named = BTreeMap::new();
        for text in names {
            match node.find(&text) {
                Ok(pod) => drop(named.insert(pod.sandbox.id, text)),
                Err(error) => failed.push(error),
            }
        }
        Ok(Self { scope, named: Some(named) })
    }

    /// Whether some were named, and none of them runs.
    fn is_nobody(&self) -> bool {
        self.named.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// What they use. Those that were named and do not run are forgotten.
    async fn look(&mut self, client: &Client, failed: &mut Vec<CtlError>) -> Result<Vec<PodSandboxStats>, CtlError> {
        let mut all = client.stats().await?;
        if let Some(named) = &mut self.named {
            let id = |stats: &PodSandboxStats| stats.attributes.clone().unwrap_or_default().id;
            let running: BTreeSet<_> = all.iter().filter(|stats| machines(stats).next().is_some()).map(id).collect();
            let ended = named.extract_if(.., |id, _| !running.contains(id));
            failed.extend(ended.map(|(_, text)| CtlError::NotRunning(text)));
            all.retain(|stats| named.contains_key(&id(stats)));
        }
        all.retain(|stats| is_meant(stats, self.scope));
        Ok(all)
    }
}

fn is_meant(stats: &PodSandboxStats, scope: &Scope) -> bool {
    let pod = stats.attributes.clone().unwrap_or_default();
    ps::is_in(scope, &pod.metadata.unwrap_or_default().namespace, &pod.labels)
}

fn rows(before: &[PodSandboxStats], now: &[PodSandboxStats]) -> Vec<Row> {
    let before: HashMap<_, _> = before.iter().flat_map(machines).filter_map(|machine| used(machine)).collect();
    let mut rows: Vec<Row> = now
        .iter()
        .filter_map(|stats| {
            let machine = machines(stats).next()?;
            let used = used(machine);
            let milli_cpus = used.and_then(|(id, now)| share(*before.get(id)?, now));
            Some(row(stats, machine, milli_cpus))
        })
        .collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name, &a.pod).cmp(&(&b.namespace, &b.name, &b.pod)));
    rows
}

fn machines(stats: &PodSandboxStats) -> impl Iterator<Item = &ContainerStats> {
    stats.linux.iter().flat_map(|linux| &linux.containers)
}

/// A machine's id with when it had used how much of CPUs, both in nanoseconds.
fn used(machine: &ContainerStats) -> Option<(&str, (i64, u64))> {
    let cpu = machine.cpu.as_ref()?;
    let id = &machine.attributes.as_ref()?.id;
    Some((id, (cpu.timestamp, cpu.usage_core_nano_seconds?.value)))
}

/// Thousandths of a CPU between two moments.
fn share((since, before): (i64, u64), (at, now): (i64, u64)) -> Option<u64> {
    let elapsed = u64::try_from(at.checked_sub(since)?).ok().filter(|elapsed| *elapsed > 0)?;
    let milli = u128::from(now.saturating_sub(before)) * 1000 / u128::from(elapsed);
    u64::try_from(milli).ok()
}

fn row(stats: &PodSandboxStats, machine: &ContainerStats, milli_cpus: Option<u64>) -> Row {
    let value = |value: Option<UInt64Value>| value.map(|value| value.value);
    let pod = stats.attributes.clone().unwrap_or_default();
    let metadata = pod.metadata.unwrap_or_default();
    let memory = machine.memory.unwrap_or_default();
    let used = value(memory.working_set_bytes).unwrap_or_default();
    let network = stats.linux.as_ref().and_then(|linux| linux.network.clone()).unwrap_or_default();
    let nics: Vec<_> = network.default_interface.into_iter().chain(network.interfaces).collect();
    let disk = machine.writable_layer.as_ref().and_then(|layer| value(layer.used_bytes));
    Row {
        namespace: metadata.namespace,
        name: metadata.name,
        pod: pod.id,
        milli_cpus,
        memory: used,
        limit: value(memory.available_bytes).map(|available| available.saturating_add(used)),
        net: (
            nics.iter().filter_map(|nic| value(nic.rx_bytes)).sum(),
            nics.iter().filter_map(|nic| value(nic.tx_bytes)).sum(),
        ),
        disk: disk.unwrap_or_default(),
    }
}

fn print(rows: &[Row], form: Option<Form>, tabled: impl FnOnce(&[Row]) -> String) -> Result<String, CtlError> {
    match form {
        None | Some(Form::Wide) => Ok(tabled(rows)),
        Some(Form::Name) => {
            Ok(rows.iter().map(|row| format!("{}\n", shown(&format!("{}/{}", row.namespace, row.name)))).collect())
        }
        Some(form) => document::of(rows.iter().map(as_json).collect(), form),
    }
}

fn as_docker(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        // A tenth of a percent is a thousandth.
        let percent = |milli: u64| format!("{}.{}%", milli / 10, milli % 10);
        let limit = row.limit.filter(|limit| *limit > 0);
        let of_memory =
            limit.map(|limit| u64::try_from(u128::from(row.memory) * 1000 / u128::from(limit)).unwrap_or(u64::MAX));
        [
            row.name.clone(),
            row.namespace.clone(),
            row.milli_cpus.map(percent).unwrap_or_default(),
            format!("{} / {}", size(row.memory), limit.map_or("-".into(), size)),
            of_memory.map(percent).unwrap_or_default(),
            format!("{} / {}", size(row.net.0), size(row.net.1)),
            size(row.disk),
        ]
    });
    table(["NAME", "NAMESPACE", "CPU %", "MEM USAGE / LIMIT", "MEM %", "NET I/O", "DISK"], &cells.collect::<Vec<_>>())
}

fn as_json(row: &Row) -> Value {
    json!({
        "namespace": row.namespace, "name": row.name, "podId": row.pod, "milliCpus": row.milli_cpus,
        "memoryBytes": row.memory, "memoryLimitBytes": row.limit, "networkReceivedBytes": row.net.0,
        "networkSentBytes": row.net.1, "diskBytes": row.disk,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_cpu_is_between_two_looks() {
        let second = 1_000_000_000;
        for (before, now, wanted) in [
            ((0, 0), (second, 1_000_000_000), Some(1000)),
            ((second, 5), (3 * second, 500_000_005), Some(250)),
            ((second, 5), (second, 50), None),
            ((second, 5), (0, 50), None),
            ((0, 50), (second, 5), Some(0)),
            ((i64::MIN, 0), (i64::MAX, 5), None),
        ] {
            assert_eq!(share(before, now), wanted, "{before:?} {now:?}");
        }
    }
}
