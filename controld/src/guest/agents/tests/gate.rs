//! Guests that wait at the gate.

use super::*;

impl Guest {
    /// As an agent greets whose guest waits.
    async fn wait(&mut self) {
        assert_eq!(self.hear().await, (0, Message::Hello { version: VERSION }));
        self.say(0, Message::Waits).await;
        self.say(0, Message::Hello { version: VERSION }).await;
    }
}

#[tokio::test]
async fn a_guest_at_the_gate_hears_of_its_pod_once_it_goes_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    agents.set_up(id, setup());
    let mut guest = Guest::accept(&qemu).await;
    guest.wait().await;
    assert!(agents.gate(id).waits().await);
    // What is its pod's waits, too.
    let command = Command { patience: BOOT, has_agent: true, ..anything(id) };
    let of_pod = tokio::spawn({
        let agents = agents.clone();
        async move { agents.run(command, None).await }
    });
    let ours = tokio::spawn({
        let agents = agents.clone();
        async move { agents.gate(id).run(|| vec!["date".into()], BOOT).await }
    });
    let (session, Message::Start(start)) = guest.hear().await else { panic!("no start") };
    assert_eq!(start.argv, ["date"]);
    guest.say(session, Message::Started { pid: 1 }).await;
    guest.say(session, Message::Exited { code: 3 }).await;
    assert_eq!(ours.await.expect("ends").expect("ran").code, 3);

    agents.gate(id).open().await.expect("open");
    assert_eq!(guest.hear().await, (0, Message::GoOn));
    assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    of_pod.await.expect("ends").expect("ran");
    // Nothing is said to one that does not wait, and one that says so now is not at the gate.
    guest.say(0, Message::Waits).await;
    guest.say(0, Message::Ready(String::new())).await;
    assert!(agents.gate(id).is_passed().await);
    agents.gate(id).open().await.expect("it is open");
    let next = tokio::spawn(async move { agents.run(anything(id), None).await });
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    next.await.expect("ends").expect("nothing else was said before");
}

#[tokio::test]
async fn a_guest_that_boots_again_waits_again_and_one_that_is_forgotten_never() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let gate = agents.keep_gate(id).expect("the first");
    assert!(agents.keep_gate(id).is_none());
    let ask = |past: bool| {
        let gate = gate.clone();
        tokio::spawn(async move { if past { gate.is_passed().await } else { gate.waits().await } })
    };
    let (waits, passes) = (ask(false), ask(true));
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    assert!(passes.await.expect("ends"));
    // The next agent says that it has started.
    guest.epoch = 0;
    guest.say(0, Message::Hello { version: VERSION }).await;
    guest.wait().await;
    assert!(waits.await.expect("ends"));
    let passes = ask(true);
    agents.forget(id);
    assert!(!passes.await.expect("ends"));
    gate.open().await.expect_err("it is gone");
}

#[tokio::test]
async fn a_guest_that_does_not_wait_runs_nothing_at_the_gate() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let run = tokio::spawn(async move { agents.gate(id).run(|| vec!["date".into()], BOOT).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    tokio::time::pause();
    let error = run.await.expect("ends").expect_err("nobody waits");
    assert!(error.to_string().starts_with("the guest does not wait at the gate"), "{error}");
}
