//! A stream of a VM joined to a pair of ours: bytes cross both ways until the VM's side ends, or ours has.
//!
//! The stream has no end of one way alone, and a client that has gone looks like one that has no more to say. So when we have no more to say, the
//! VM's side is heard until it ends or has been silent for a while ([`Linger`]).

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cluster::stream::Stream;
use crate::error::CtlError;

/// For the end to say why.
const END: Duration = Duration::from_secs(5);
/// What is read at once.
const CHUNK: usize = 16 << 10;

/// How long the VM's side may be silent once ours has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Linger {
    /// Before it says anything about what we said last.
    unanswered: Duration,
    /// From one part of what it says to the next, or if we have asked nothing.
    answered: Duration,
}

/// How both were joined to an end that is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The VM's side has ended: that was all that it had to say.
    Vm,
    /// Nobody takes what it says.
    Us,
    /// Ours has ended, and it was silent for so long. It may have had more to say.
    Silent(Duration),
}

impl Linger {
    /// For a port: its answer may take a while.
    pub(super) const PORT: Self = Self { unanswered: Duration::from_secs(30), answered: Duration::from_secs(2) };
    /// For a screen, of which nobody who has gone wants more.
    pub(super) const NONE: Self = Self { unanswered: Duration::ZERO, answered: Duration::ZERO };
}

/// Joins both. What is ours and cannot be read or written has ended.
///
/// # Errors
/// When the VM's side broke off: what it said may not be whole.
pub(super) async fn join(
    stream: Stream,
    mut says: impl AsyncRead + Unpin,
    sees: &mut (impl AsyncWrite + Unpin),
    linger: Linger,
) -> Result<End, CtlError> {
    let Stream { mut read, mut write, ended } = stream;
    let (over, waits) = (CancellationToken::new(), AtomicBool::new(false));
    let up = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = match says.read(&mut chunk).await {
                Ok(0) => break,
                Ok(len) => len,
                // It has gone, and hears nothing either.
                Err(_) => return End::Us,
            };
            waits.store(true, Ordering::Relaxed);
            let said = chunk.get(..len).unwrap_or_default();
            // That the VM's side takes no more, it says itself.
            if write.write_all(said).await.is_err() || write.flush().await.is_err() {
                break;
            }
        }
        over.cancel();
        pending().await
    };
    let down = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = tokio::select! {
                read = read.read(&mut chunk) => read.unwrap_or(0),
                silence = silent(&over, &waits, linger) => return End::Silent(silence),
            };
            waits.store(false, Ordering::Relaxed);
            let heard = chunk.get(..len).unwrap_or_default();
            if heard.is_empty() {
                return End::Vm;
            }
            if sees.write_all(heard).await.is_err() || sees.flush().await.is_err() {
                return End::Us;
            }
        }
    };
    let end = tokio::select! {
        end = down => end,
        gone = up => gone,
    };
    // The server is told that we leave.
    drop(write);
    match timeout(END, ended).await {
        Ok(ended) if end == End::Vm => ended.map(|_| end).map_err(CtlError::from),
        _ => Ok(end),
    }
}

/// Comes once ours has ended and the VM's side may say no more; how long it was silent then.
async fn silent(over: &CancellationToken, waits: &AtomicBool, linger: Linger) -> Duration {
    over.cancelled().await;
    let silence = if waits.load(Ordering::Relaxed) { linger.unanswered } else { linger.answered };
    sleep(silence).await;
    silence
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::cluster::stream::By;
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
        let joined = tokio::spawn(async move { join(stream, says, &mut sees, Linger::PORT).await });
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
        let error = join(stream, says, &mut sees, Linger::PORT).await.expect_err("it is refused");
        assert_eq!(common::Chain(&error).to_string(), "stream of the VM ended: connection refused");
    }

    /// What is seen of a VM that says this after it was sent all, how that ended, and what the VM heard.
    async fn lingered(sent: &[u8], told: &[u8], linger: Linger) -> (Vec<u8>, End, Vec<u8>) {
        let ((read, mut vm_says), (write, mut vm_hears)) = (duplex(1 << 10), duplex(1 << 10));
        let stream = Stream { read: Box::new(read), write: Box::new(write), ended: Box::pin(pending()) };
        let (mut sees, mut heard) = (Vec::new(), vec![0; sent.len()]);
        let vm = async {
            vm_hears.read_exact(&mut heard).await.expect("it is sent");
            vm_says.write_all(told).await.expect("written");
            pending::<()>().await;
        };
        let end = tokio::select! {
            end = join(stream, sent, &mut sees, linger) => end.expect("we left"),
            () = vm => unreachable!(),
        };
        vm_hears.read_to_end(&mut heard).await.expect("it is told that we left");
        (sees, end, heard)
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_more_to_say_hears_the_rest_for_a_while() {
        let (seen, end, heard) = lingered(b"that is all", b"all of it", Linger::PORT).await;
        assert_eq!((&seen[..], &heard[..]), (&b"all of it"[..], &b"that is all"[..]));
        assert_eq!(end, End::Silent(Linger::PORT.answered));
        // An answer may take longer than what has none to give.
        assert_eq!(lingered(b"that is all", b"", Linger::PORT).await.1, End::Silent(Linger::PORT.unanswered));
        assert_eq!(lingered(b"", b"", Linger::PORT).await.1, End::Silent(Linger::PORT.answered));
        assert_eq!(lingered(b"keys", b"", Linger::NONE).await.1, End::Silent(Duration::ZERO));
    }

    #[tokio::test]
    async fn who_ends_is_told() {
        let ((read, vm_says), (write, _vm_hears)) = (duplex(1 << 10), duplex(1 << 10));
        drop(vm_says);
        let ended = Box::pin(async { Ok(By::Server) });
        let stream = Stream { read: Box::new(read), write: Box::new(write), ended };
        let (_ours, says) = duplex(1 << 10);
        let end = join(stream, says, &mut tokio::io::sink(), Linger::PORT).await.expect("in order");
        assert_eq!(end, End::Vm);
    }
}
