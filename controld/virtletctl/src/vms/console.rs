//! `console`: our terminal and a VM's serial console through the API server, until the VM ends or the user leaves.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::reach::Vm;
use crate::cli::VmConsole;
use crate::cluster::stream::{By, Stream};
use crate::console::{END_DEADLINE, Ended, at_terminal, show, type_in};
use crate::error::CtlError;

pub(super) async fn run(wanted: &VmConsole) -> Result<(), CtlError> {
    let vm = Vm::of(&wanted.vm.at, &wanted.vm.name).await?;
    let deadline = Duration::from_secs(60 * u64::from(wanted.timeout));
    let stream = vm.awaited("attach to the console of", "console", deadline).await?;
    at_terminal(&vm.whole(), async move |keys, leaves| talk(stream, keys, leaves, tokio::io::stdout()).await).await
}

/// Carries a session until one of its ends is reached. Input that is only bytes may end before: what the VM says is shown on.
async fn talk(
    stream: Stream,
    keys: mpsc::Receiver<Bytes>,
    leaves: bool,
    out: impl AsyncWrite + Unpin,
) -> Result<Ended, CtlError> {
    let Stream { read, write, mut ended } = stream;
    tokio::select! {
        shown = show(Some(read), out) => {
            shown?;
            // It has said all it had to show.
            timeout(END_DEADLINE, &mut ended).await.unwrap_or(Ok(By::Server))?;
            Ok(Ended::Machine)
        }
        // The stream stays open behind the last key: it has no end of one way alone.
        () = type_in(keys, Some(write), leaves, false) => {
            // Past the deadline, what was typed last is lost.
            let _ = timeout(END_DEADLINE, &mut ended).await;
            Ok(Ended::User)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;
    use crate::cluster::tests::{Api, STREAM, cluster, nowhere};

    #[tokio::test]
    async fn the_end_of_input_is_not_that_of_the_session() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, "login: ");
        let cluster = cluster(&api.at, &nowhere());
        let vm = Vm { cluster, kind: None, namespace: "default".into(), name: "web".into() };
        let stream = vm.stream("attach to the console of", "console").await.expect("a stream");
        let (keys, typed) = mpsc::channel(2);
        keys.send(Bytes::from_static(b"\x1dls\n")).await.expect("room");
        drop(keys);
        let (out, mut shown) = duplex(1 << 10);
        let mut session = pin!(talk(stream, typed, false, out));
        let mut seen = [0; 11];
        tokio::select! {
            ended = &mut session => panic!("it ended: {ended:?}"),
            read = shown.read_exact(&mut seen) => assert_eq!(read.expect("shown"), 11),
        }
        assert_eq!(&seen, b"login: \x1dLS\n");
    }

    #[tokio::test]
    async fn who_leaves_ends_it() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, "");
        let cluster = cluster(&api.at, &nowhere());
        let vm = Vm { cluster, kind: None, namespace: "default".into(), name: "web".into() };
        let stream = vm.stream("attach to the console of", "console").await.expect("a stream");
        let (keys, typed) = mpsc::channel(2);
        keys.send(Bytes::from_static(b"\x1d")).await.expect("room");
        assert_eq!(talk(stream, typed, true, tokio::io::sink()).await.expect("well"), Ended::User);
    }
}
