//! A stream of a VM joined to a pair of ours: bytes cross both ways until the VM's side ends, or ours has.
//!
//! The stream has no end of one way alone. So when we have no more to say, the VM's side is heard until it ends or has been silent for a while.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cluster::stream::Stream;
use crate::error::CtlError;

/// For what the VM's side says after we have ended, from one part of it to the next.
const LINGER: Duration = Duration::from_secs(30);
/// For the end to say why.
const END: Duration = Duration::from_secs(5);
/// What is read at once.
const CHUNK: usize = 16 << 10;

/// Joins both. What is ours and cannot be read or written has ended.
///
/// # Errors
/// When the VM's side broke off: what it said may not be whole.
pub(super) async fn join(
    stream: Stream,
    mut says: impl AsyncRead + Unpin,
    sees: &mut (impl AsyncWrite + Unpin),
) -> Result<(), CtlError> {
    let Stream { mut read, mut write, ended } = stream;
    let over = CancellationToken::new();
    let up = async {
        // Who fails has ended.
        let _ = copy(&mut says, &mut write).await;
        over.cancel();
        pending::<bool>().await
    };
    let down = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = tokio::select! {
                read = read.read(&mut chunk) => read.unwrap_or(0),
                () = silent(&over) => return false,
            };
            let heard = chunk.get(..len).unwrap_or_default();
            if heard.is_empty() {
                return true;
            }
            if sees.write_all(heard).await.is_err() || sees.flush().await.is_err() {
                return false;
            }
        }
    };
    let is_whole = tokio::select! {
        is_whole = down => is_whole,
        never = up => never,
    };
    // The server is told that we leave.
    drop(write);
    match timeout(END, ended).await {
        Ok(ended) if is_whole => Ok(ended?),
        _ => Ok(()),
    }
}

async fn silent(over: &CancellationToken) {
    over.cancelled().await;
    sleep(LINGER).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::cluster::tests::{Api, ENDS, STREAM, cluster, nowhere};
    use crate::vms::reach::Vm;

    /// A port of a VM that says this first, and then in capitals what it hears.
    async fn port(first: &str) -> (Api, Stream) {
        let api = Api::start().await;
        api.answers("GET ", STREAM, first);
        let cluster = cluster(&api.at, &nowhere());
        let vm = Vm { cluster, kind: None, namespace: "default".into(), name: "web".into() };
        let stream = vm.port(22).await.expect("a stream");
        let asked = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/web/portforward/22";
        assert_eq!(api.asked(), [format!("GET {asked}")]);
        (api, stream)
    }

    #[tokio::test]
    async fn bytes_cross_both_ways() {
        let (_api, stream) = port("SSH-2.0\n").await;
        let (mut ours, theirs) = duplex(1 << 10);
        let (says, mut sees) = tokio::io::split(theirs);
        let joined = tokio::spawn(async move { join(stream, says, &mut sees).await });
        ours.write_all(b"hello").await.expect("written");
        let mut heard = [0; 13];
        ours.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"SSH-2.0\nHELLO");
        drop(ours);
        // Whoever has gone does not read either; that is found out once the other side speaks, or after a while.
        joined.abort();
    }

    #[tokio::test]
    async fn an_end_with_a_reason_is_an_error() {
        let (_api, stream) = port(&format!("{ENDS}connection refused")).await;
        let (_ours, theirs) = duplex(1 << 10);
        let (says, mut sees) = tokio::io::split(theirs);
        let error = join(stream, says, &mut sees).await.expect_err("it is refused");
        assert_eq!(common::Chain(&error).to_string(), "stream of the VM ended: connection refused");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_more_to_say_hears_the_rest_for_a_while() {
        let ((read, mut vm_says), (write, mut vm_hears)) = (duplex(1 << 10), duplex(1 << 10));
        vm_says.write_all(b"all of it").await.expect("written");
        let stream = Stream { read: Box::new(read), write: Box::new(write), ended: Box::pin(pending()) };
        let mut sees = Vec::new();
        join(stream, &b"that is all"[..], &mut sees).await.expect("we left");
        let mut heard = Vec::new();
        vm_hears.read_to_end(&mut heard).await.expect("it is told that we left");
        assert_eq!((&sees[..], &heard[..]), (&b"all of it"[..], &b"that is all"[..]));
    }
}
