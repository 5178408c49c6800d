//! Sends a file, or what comes on the standard input, to controld as an image.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::poll_fn;
use proto::images::import_request::Part;
use proto::images::{Image, ImportEnd, ImportHead, ImportRequest, Progress};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::interrupt::Interrupt;
use super::pull::manner;
use super::pull::teller::Teller;
use super::tell::tell;

/// What stands for the standard input.
const STDIN: &str = "-";
/// Bytes of a piece, as controld takes them.
const PIECE: usize = 1 << 20;
/// Pieces that are read before controld wants them.
const AHEAD: usize = 2;
/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Sends what is in `file`, which is called what `head` says.
pub(super) async fn run(
    client: &Client,
    file: &Path,
    mut head: ImportHead,
    progress: cli::Progress,
    interrupt: &Interrupt,
) -> Result<Image, CtlError> {
    let (from, length) = open(file)?;
    head.length = length;
    let (name, sent) = (head.name.clone(), Arc::new(AtomicU64::new(0)));
    let (pieces, mut failed) = pieces(from, head, sent.clone())?;
    let mut teller = Teller::new(manner(progress), &name).of_import();
    let imported = watch(client, &name, pieces, (&sent, length), &mut teller, interrupt).await;
    tell(teller.clear());
    // What could not be read is why controld has not got it, and is told before the pieces end.
    let unread = |cause| CtlError::File { action: "read", path: file.to_owned(), cause };
    let image = match (imported, failed.try_recv()) {
        (Err(interrupted @ CtlError::Interrupted(_)), _) => return Err(interrupted),
        (Err(_), Ok(cause)) => return Err(unread(cause)),
        (imported, _) => imported?,
    };
    tell(&teller.done(&image, false, true));
    Ok(image)
}

/// Whether a path stands for the standard input.
pub(super) fn is_stdin(file: &Path) -> bool {
    file == Path::new(STDIN)
}

/// What is to be read, and how many bytes that are if it is known; 0 otherwise.
fn open(file: &Path) -> Result<(Box<dyn Read + Send>, u64), CtlError> {
    if is_stdin(file) {
        return Ok((Box::new(io::stdin()), 0));
    }
    let failed = |cause| CtlError::File { action: "open", path: PathBuf::from(file), cause };
    let opened = File::open(file).map_err(failed)?;
    let facts = opened.metadata().map_err(failed)?;
    if facts.is_file() && facts.len() == 0 {
        return Err(CtlError::Empty(file.to_owned()));
    }
    let length = if facts.is_file() { facts.len() } else { 0 };
    Ok((Box::new(opened), length))
}

/// The messages of an import, and why they end too early. `sent` counts bytes as they are wanted.
fn pieces(
    from: Box<dyn Read + Send>,
    head: ImportHead,
    sent: Arc<AtomicU64>,
) -> Result<(impl Stream<Item = ImportRequest> + Send + 'static, oneshot::Receiver<io::Error>), CtlError> {
    let (to, mut pieces) = mpsc::channel(AHEAD);
    let (tell_failure, failed) = oneshot::channel();
    // A thread of its own, which nobody waits for: a read of a terminal or a pipe may never end.
    let reading = std::thread::Builder::new().name("import-read".into()).spawn(move || {
        if let Err(cause) = read(from, head, &to) {
            // Nobody listens once the command has ended.
            let _ = tell_failure.send(cause);
        }
    });
    reading.map_err(|cause| CtlError::Terminal { action: "start a thread", cause })?;
    let stream = poll_fn(move |context| {
        let piece = pieces.poll_recv(context);
        if let std::task::Poll::Ready(Some(ImportRequest { part: Some(Part::Piece(bytes)) })) = &piece {
            sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        piece
    });
    Ok((stream, failed))
}

/// Reads to the end, which is told only if it is one.
fn read(mut from: Box<dyn Read + Send>, head: ImportHead, to: &mpsc::Sender<ImportRequest>) -> io::Result<()> {
    let send = |part| to.blocking_send(ImportRequest { part: Some(part) }).is_ok();
    if !send(Part::Head(head)) {
        return Ok(());
    }
    loop {
        let mut piece = vec![0; PIECE];
        let count = match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        piece.truncate(count);
        if piece.is_empty() {
            send(Part::End(ImportEnd {}));
            return Ok(());
        }
        if !send(Part::Piece(piece)) {
            return Ok(());
        }
    }
}

async fn watch(
    client: &Client,
    name: &str,
    pieces: impl Stream<Item = ImportRequest> + Send + 'static,
    (sent, total): (&AtomicU64, u64),
    teller: &mut Teller,
    interrupt: &Interrupt,
) -> Result<Image, CtlError> {
    let began = Instant::now();
    let mut ticks = interval(TELL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut importing = std::pin::pin!(client.import_image(name, pieces));
    loop {
        tokio::select! {
            image = &mut importing => return image,
            // Dropping the call makes controld leave nothing of it.
            signal = interrupt.fired() => return Err(CtlError::Interrupted(signal)),
            _ = ticks.tick() => {
                let progress = Progress { bytes: sent.load(Ordering::Relaxed), total, resumed: 0 };
                tell(&teller.progress(began.elapsed(), &progress));
            }
        }
    }
}
