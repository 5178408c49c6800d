//! Whose a line of the log is that a connection makes which a call has opened.

use std::io;
use std::sync::LazyLock;

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Instrument as _, error_span};

use super::*;

/// With one subscriber, tracing asks the thread that first comes to a span whether anybody wants it, and believes that for all
/// threads: the one of another test says no. With several it asks all of them.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_connection_says_is_the_pods_and_not_of_the_call_that_opened_it() {
    LazyLock::force(&OTHERS);
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logs = tracing::subscriber::set_default(log);
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
    let text = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("UTF-8");
    let line = text.lines().find(|line| line.contains("sends what nobody asked for")).expect("told");
    assert!(line.contains(r#" container{name="web"}: "#) && !line.contains("call"), "{line}");
    drop(process);
}
