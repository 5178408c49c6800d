//! What the agent has to say, as long as the port does not take it.

use std::collections::VecDeque;
use std::io::{self, Write};

use proto::agent::{Frame, Message, encode};

/// Output is read from processes as long as there is less than this to say.
const FULL: usize = 512 * 1024;

/// Frames for the port.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    frames: VecDeque<Vec<u8>>,
    /// Of the first frame.
    written: usize,
    /// Of all frames.
    bytes: usize,
    /// Epoch of the connection; 0 before `controld` has said one.
    pub(crate) epoch: u64,
}

impl Outbox {
    pub(crate) fn say(&mut self, session: u32, message: Message) {
        // The agent's own messages are short.
        if let Ok(frame) = encode(&Frame { epoch: self.epoch, session, message }) {
            self.bytes += frame.len();
            self.frames.push_back(frame);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= FULL
    }

    /// Forgets what nobody waits for any more, but for the rest of a frame that has begun: it would take the next frame's
    /// beginning for its end.
    pub(crate) fn clear(&mut self) {
        self.frames.truncate(usize::from(self.written > 0));
        self.bytes = self.frames.iter().map(Vec::len).sum();
    }

    /// Writes what the port takes.
    pub(crate) fn flush(&mut self, mut port: impl Write) -> io::Result<()> {
        while let Some(frame) = self.frames.front() {
            match port.write(frame.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Ok(()),
                Ok(written) if self.written + written < frame.len() => self.written += written,
                Ok(_whole) => {
                    self.bytes -= frame.len();
                    self.written = 0;
                    self.frames.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::agent::Decoder;

    use super::*;

    /// Takes so many bytes, and no more until it is emptied.
    struct Port {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for &mut Port {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fit = bytes.len().min(self.room);
            if fit == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.taken.extend_from_slice(&bytes[..fit]);
            self.room -= fit;
            Ok(fit)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_frame_that_has_begun_is_ended_whatever_is_forgotten() {
        let mut outbox = Outbox::default();
        let mut port = Port { taken: Vec::new(), room: 40 };
        outbox.say(1, Message::Stdout(vec![b'x'; 100]));
        outbox.say(2, Message::Stdout(vec![b'y'; 100]));
        outbox.flush(&mut port).unwrap();
        outbox.clear();
        outbox.say(0, Message::Hello { version: 1 });
        port.room = usize::MAX;
        outbox.flush(&mut port).unwrap();
        assert!(outbox.is_empty() && outbox.bytes == 0);
        let mut decoder = Decoder::of_agent();
        decoder.extend(&port.taken);
        let heard: Vec<_> = std::iter::from_fn(|| decoder.next_frame()).map(|frame| frame.session).collect();
        assert_eq!((heard, decoder.skipped()), (vec![1, 0], 0));
    }
}
