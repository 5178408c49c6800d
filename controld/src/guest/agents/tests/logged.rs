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

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_how_its_guest_is_to_be_is_told_of() {
    for answers in [true, false] {
        let (lines, _logs) = Lines::of_this_thread();
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = agents(dir.path());
        agents.log_in(id, error_span!(parent: None, "container", name = "web"));
        agents.set_up(id, setup());
        let mut guest = Guest::accept(&qemu).await;
        guest.greet().await;
        assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
        if answers {
            guest.say(0, Message::Ready(String::new())).await;
        }
        sleep(Duration::from_secs(61)).await;
        let text = lines.text();
        let is_told = text.lines().any(|line| line.contains(r#"name="web""#) && line.contains("of an earlier release"));
        assert_eq!(is_told, !answers, "{text}");
    }
}
