//! Our standard input, as bytes come.

use std::io::{self, Read as _};

use bytes::Bytes;
use tokio::sync::mpsc;

/// Input that is read at once.
const CHUNK: usize = 4096;

/// Starts reading. A thread of its own, since a read of a terminal cannot be called off; it ends with the process.
pub(in super::super) fn read() -> io::Result<mpsc::Receiver<Bytes>> {
    let (keys, typed) = mpsc::channel(4);
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(read @ 1..) => {
                    let bytes = Bytes::copy_from_slice(buffer.get(..read).unwrap_or_default());
                    if keys.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal that hung up has no more keys either.
                Ok(_) | Err(_) => return,
            }
        }
    })?;
    Ok(typed)
}
