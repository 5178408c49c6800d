//! Whose a line of the log is that a connection makes which a call has opened.

use tracing::{Instrument as _, error_span};

use super::*;
use crate::logged::Lines;

#[tokio::test]
async fn what_a_connection_says_is_the_pods_and_not_of_the_call_that_opened_it() {
    let (lines, _logs) = Lines::of_this_thread();
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    agents.log_in(id, error_span!(parent: None, "container", name = "web"));
    let caller = agents.clone();
    let call = async move { caller.start(anything(id)).await }.instrument(error_span!("call", call = "Exec"));
    let started = tokio::spawn(call);
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    guest.begin().await;
    let process = started.await.expect("no panic").expect("starts");
    // More than anybody asked for, until it is listened to no more.
    while guest.stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("sends what nobody asked for")).expect("told");
    assert!(line.contains(r#" container{name="web"}: "#) && !line.contains("call"), "{line}");
    drop(process);
}
