//! As much of a VNC viewer as it takes to see that there is a screen (RFC 6143): its handshake, and whole pictures.

use std::io::{self, Read, Write};

use anyhow::{Result, ensure};

const VERSION: [u8; 12] = *b"RFB 003.008\n";
/// The kind of security that asks for nothing.
const NONE: u8 = 1;
/// Other viewers stay.
const SHARED: u8 = 1;
/// Messages: what a viewer asks for, and what it gets.
const UPDATE_REQUEST: u8 = 3;
const UPDATE: u8 = 0;
/// Pixels as they are, which is what there is without another wish.
const RAW: [u8; 4] = [0; 4];
const BYTES_OF_PIXEL: u64 = 4;

/// A screen, in pixels of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// In pixels.
    pub width: u16,
    /// In pixels.
    pub height: u16,
}

/// The whole handshake; the screen that it tells of.
///
/// # Errors
/// When the other end is no such server, or lets nobody in.
pub fn greet(stream: &mut (impl Read + Write)) -> Result<Screen> {
    let version: [u8; VERSION.len()] = some(stream)?;
    ensure!(version == VERSION, "not RFB 3.8: {:?}", String::from_utf8_lossy(&version));
    stream.write_all(&VERSION)?;
    let [count]: [u8; 1] = some(stream)?;
    let mut kinds = vec![0; count.into()];
    stream.read_exact(&mut kinds)?;
    ensure!(kinds.contains(&NONE), "not without a password: {kinds:?}");
    stream.write_all(&[NONE])?;
    let result: [u8; 4] = some(stream)?;
    ensure!(result == [0; 4], "refused: {result:?}");
    stream.write_all(&[SHARED])?;
    let [w, x, h, y, bits, .., a, b, c, d]: [u8; 24] = some(stream)?;
    let screen = Screen { width: u16::from_be_bytes([w, x]), height: u16::from_be_bytes([h, y]) };
    ensure!(
        u64::from(bits) == 8 * BYTES_OF_PIXEL && screen.width > 0 && screen.height > 0,
        "{screen:?} of {bits} bits"
    );
    // Its name says nothing.
    passed(stream, u32::from_be_bytes([a, b, c, d]).into())?;
    Ok(screen)
}

/// Asks for the whole picture, and waits for it; its bytes.
///
/// # Errors
/// When something else comes.
pub fn picture(stream: &mut (impl Read + Write), Screen { width, height }: Screen) -> Result<u64> {
    let ([w, x], [h, y]) = (width.to_be_bytes(), height.to_be_bytes());
    stream.write_all(&[UPDATE_REQUEST, 0, 0, 0, 0, 0, w, x, h, y])?;
    let all = u64::from(width) * u64::from(height) * BYTES_OF_PIXEL;
    let mut come = 0;
    while come < all {
        let [kind, _, count @ ..]: [u8; 4] = some(stream)?;
        ensure!(kind == UPDATE, "message {kind} in place of a picture");
        for _ in 0..u16::from_be_bytes(count) {
            let [_, _, _, _, w, x, h, y, encoding @ ..]: [u8; 12] = some(stream)?;
            ensure!(encoding == RAW, "encoding {encoding:?}");
            let pixels = u64::from(u16::from_be_bytes([w, x])) * u64::from(u16::from_be_bytes([h, y]));
            passed(stream, pixels * BYTES_OF_PIXEL)?;
            come += pixels * BYTES_OF_PIXEL;
        }
    }
    Ok(come)
}

fn some<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn passed(stream: &mut impl Read, count: u64) -> Result<()> {
    let copied = io::copy(&mut stream.take(count), &mut io::sink())?;
    ensure!(copied == count, "{copied} bytes of {count}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Server<'a>(&'a [u8], Vec<u8>);

    impl Read for Server<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }

    impl Write for Server<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_screen_is_greeted_and_its_picture_may_come_in_parts() {
        let head =
            b"RFB 003.008\n\x02\x02\x01\0\0\0\0\0\x03\0\x02\x20\x18\0\x01\0\xff\0\xff\0\xff\x10\x08\0\0\0\0\0\0\0\x01q";
        let part = |rows: u8| {
            [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 0, rows, 0, 0, 0, 0][..], &vec![7; 12 * usize::from(rows)]].concat()
        };
        let said = [&head[..], &part(1), &part(1)].concat();
        let mut server = Server(&said, Vec::new());
        let screen = greet(&mut server).unwrap();
        assert_eq!(screen, Screen { width: 3, height: 2 });
        assert_eq!(picture(&mut server, screen).unwrap(), 24);
        assert_eq!(server.1, b"RFB 003.008\n\x01\x01\x03\0\0\0\0\0\0\x03\0\x02");
        assert!(picture(&mut server, screen).is_err());
        assert!(greet(&mut Server(b"RFB 003.003\n", Vec::new())).is_err());
        assert!(greet(&mut Server(&said[..20], Vec::new())).is_err());
    }
}
