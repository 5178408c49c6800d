//! `ps -w`: after the list, a row for each that is new, is another, or is gone.

use std::collections::BTreeMap;
use std::io::Write;

use common::now_nanos;

use super::super::cli;
use super::super::client::Client;
use super::super::error::CtlError;
use super::super::find::Node;
use super::row::{Row, rows};
use super::{listed, print};

/// Says of a row that it is gone.
const REMOVED: &str = "Removed";

/// Prints until controld or the user ends it.
pub(super) async fn run(
    client: &Client,
    wanted: &cli::Ps,
    out: &mut (dyn Write + Send),
    failed: &mut Vec<CtlError>,
) -> Result<(), CtlError> {
    // Before the first look, so that nothing is missed in between.
    let mut events = client.events().await?;
    let mut known = listed(client, wanted, failed).await?;
    if known.is_empty() && !failed.is_empty() {
        // None of those that were named.
        return Ok(());
    }
    out.write_all(print::text(&known, wanted, now_nanos(), true)?.as_bytes())?;
    out.flush()?;
    while events.next().await?.is_some() {
        // What fails at each look is told of the first alone.
        let now = listed(client, wanted, &mut Vec::new()).await?;
        let all = all_rows(client, &known, &now).await?;
        let changed = changes(&known, &now, &all);
        if !changed.is_empty() {
            out.write_all(print::text(&changed, wanted, now_nanos(), false)?.as_bytes())?;
            out.flush()?;
        }
        known = now;
    }
    Ok(())
}

/// All rows of the node if some are listed no more, to tell those that are gone from those that are not wanted as they are now.
async fn all_rows(client: &Client, before: &[Row], now: &[Row]) -> Result<Vec<Row>, CtlError> {
    if before.iter().all(|row| is_among(row, now)) {
        return Ok(Vec::new());
    }
    Ok(rows(&Node::read(client).await?, &BTreeMap::new()))
}

fn is_among(row: &Row, rows: &[Row]) -> bool {
    rows.iter().any(|other| other.key() == row.key())
}

/// What is not as it was.
fn changes(before: &[Row], now: &[Row], all: &[Row]) -> Vec<Row> {
    let gone = before.iter().filter(|row| !is_among(row, now));
    let gone = gone.map(|row| {
        let state = all.iter().find(|other| other.key() == row.key()).map_or(REMOVED, |other| other.state);
        Row { state, ..row.clone() }
    });
    gone.chain(now.iter().filter(|row| !before.contains(row)).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pod: &str, state: &'static str) -> Row {
        Row {
            name: pod.into(),
            namespace: "default".into(),
            state,
            exit_code: None,
            ip: String::new(),
            image: "x".into(),
            image_id: String::new(),
            created: 0,
            newest: 0,
            pod: pod.into(),
            uid: String::new(),
            container: format!("c{pod}"),
            labels: Default::default(),
            handler: String::new(),
            attempt: 0,
            container_name: "vm".into(),
            is_vm: true,
        }
    }

    #[test]
    fn only_what_changed_is_told() {
        let before = [row("a", "Running"), row("b", "Running"), row("c", "Exited"), row("e", "Running")];
        let now = [row("a", "Running"), row("b", "Exited"), row("d", "Created")];
        // Which is there still, and only not wanted as it is.
        let all = [row("e", "Exited")];
        let told: Vec<_> = changes(&before, &now, &all).into_iter().map(|row| (row.name, row.state)).collect();
        let wanted = [("c", "Removed"), ("e", "Exited"), ("b", "Exited"), ("d", "Created")]
            .map(|(name, state)| (name.to_owned(), state));
        assert_eq!(told, wanted);
        assert_eq!(changes(&now, &now, &[]), []);
    }
}
