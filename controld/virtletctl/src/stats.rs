//! `stats` and `top`: what machines use. A share of CPU is what they used between two looks.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use proto::cri::{ContainerStats, PodSandboxStats, UInt64Value};
use serde_json::{Value, json};

use super::cli::{Form, Scope, Stats, Top};
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
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

/// Like `kubectl top pod`.
pub(super) async fn top(client: &Client, wanted: &Top, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let before = look(client, wanted).await?;
    tokio::time::sleep(PERIOD).await;
    let rows = rows(&before, &look(client, wanted).await?);
    let text = print(&rows, wanted.output.form(), |rows| {
        let cells = rows.iter().map(|row| {
            let cpu = row.milli_cpus.map(|milli| format!("{milli}m")).unwrap_or_default();
            [row.namespace.clone(), row.name.clone(), cpu, format!("{}Mi", row.memory >> 20)]
        });
        table(["NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"], &cells.collect::<Vec<_>>())
    })?;
    Ok(out.write_all(text.as_bytes())?)
}

/// Like `docker stats`: again and again, until the user has seen enough.
pub(super) async fn stats(client: &Client, wanted: &Stats, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let form = wanted.top.output.form();
    let clears = !wanted.no_stream && form.is_none_or(|form| form == Form::Wide) && io::stdout().is_terminal();
    let mut before = look(client, &wanted.top).await?;
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = look(client, &wanted.top).await?;
        let text = print(&rows(&before, &now), form, as_docker)?;
        write!(out, "{}{text}", if clears { CLEAR } else { "" })?;
        out.flush()?;
        if wanted.no_stream {
            return Ok(());
        }
        before = now;
    }
}

/// What the machines that are meant use, by their pods' ids.
async fn look(client: &Client, wanted: &Top) -> Result<Vec<PodSandboxStats>, CtlError> {
    let mut all = client.stats().await?;
    if !wanted.pods.is_empty() {
        let node = Node::read(client).await?;
        let ids: Vec<String> =
            wanted.pods.iter().map(|text| Ok(node.find(text)?.sandbox.id)).collect::<Result<_, CtlError>>()?;
        all.retain(|stats| stats.attributes.as_ref().is_some_and(|pod| ids.contains(&pod.id)));
    }
    all.retain(|stats| is_meant(stats, &wanted.scope));
    Ok(all)
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
