//! One look at a screen by VNC's protocol, RFB (RFC 6143). The other end is QEMU, which a guest may have taken over: what it says
//! is bounded.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The version that QEMU has.
const VERSION: &[u8; 12] = b"RFB 003.008\n";
/// Security type without a login.
const NO_LOGIN: u8 = 1;
/// Encoding that is the pixels themselves.
const RAW: i32 = 0;
/// Pixels of a screen; those of a guest whose video memory nobody has enlarged are a quarter of it.
const MAX_PIXELS: usize = 16 << 20;
/// Text that is skipped: a name, a clipboard.
const MAX_TEXT: u32 = 1 << 20;
/// Bytes of a pixel as it is asked for, of which the fourth says nothing.
const PIXEL: usize = 4;
/// 32 bits a pixel, the low 24 of them blue, green and red of 8 bits each; little-endian.
const FORMAT: [u8; 16] = [32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0];

/// What a screen shows: pixels of 3 bytes, red, green and blue, line by line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) rgb: Vec<u8>,
}

/// Looks once. The pointer may be moved before that, so that a guest that shows nothing while nobody is there wakes up. The caller has a
/// deadline.
pub(super) async fn look(mut screen: impl AsyncRead + AsyncWrite + Unpin, moves_pointer: bool) -> io::Result<Picture> {
    let (width, height) = greet(&mut screen).await?;
    let pixels = usize::from(width) * usize::from(height);
    if pixels == 0 || pixels > MAX_PIXELS {
        return Err(wrong(format!("a screen of {width} by {height} pixels")));
    }
    screen.write_all(&[0, 0, 0, 0]).await?;
    screen.write_all(&FORMAT).await?;
    screen.write_all(&[2, 0, 0, 1]).await?;
    screen.write_all(&RAW.to_be_bytes()).await?;
    if moves_pointer {
        // No button, at 1 by 1 and at 0 by 0: the pointer may have been at one of them.
        screen.write_all(&[5, 0, 0, 1, 0, 1, 5, 0, 0, 0, 0, 0]).await?;
    }
    // All of it, and not what has changed.
    screen.write_all(&[3, 0, 0, 0, 0, 0]).await?;
    screen.write_all(&width.to_be_bytes()).await?;
    screen.write_all(&height.to_be_bytes()).await?;
    screen.flush().await?;
    let mut picture = Picture { width, height, rgb: vec![0; pixels * 3] };
    let mut seen = 0;
    while seen < pixels {
        match screen.read_u8().await? {
            0 => seen += update(&mut screen, &mut picture).await?,
            1 => {
                screen.read_exact(&mut [0; 3]).await?;
                let colours = screen.read_u16().await?;
                skip(&mut screen, u32::from(colours) * 6).await?;
            }
            // A bell.
            2 => {}
            3 => {
                screen.read_exact(&mut [0; 3]).await?;
                let length = screen.read_u32().await?;
                skip(&mut screen, length).await?;
            }
            other => return Err(wrong(format!("message {other}, which nobody asked for"))),
        }
    }
    Ok(picture)
}

/// Up to the screen's size.
async fn greet(screen: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<(u16, u16)> {
    let mut version = [0; VERSION.len()];
    screen.read_exact(&mut version).await?;
    if !version.starts_with(b"RFB ") {
        return Err(wrong("a greeting that is not VNC's".into()));
    }
    screen.write_all(VERSION).await?;
    screen.flush().await?;
    let mut kinds = vec![0; usize::from(screen.read_u8().await?)];
    screen.read_exact(&mut kinds).await?;
    if !kinds.contains(&NO_LOGIN) {
        return Err(wrong("that one has to log in".into()));
    }
    screen.write_all(&[NO_LOGIN]).await?;
    screen.flush().await?;
    if screen.read_u32().await? != 0 {
        return Err(wrong("that nobody is let in".into()));
    }
    // Others may look on.
    screen.write_all(&[1]).await?;
    screen.flush().await?;
    let size = (screen.read_u16().await?, screen.read_u16().await?);
    screen.read_exact(&mut [0; FORMAT.len()]).await?;
    let name = screen.read_u32().await?;
    skip(screen, name).await?;
    Ok(size)
}

/// Takes rectangles; how many pixels came.
async fn update(screen: &mut (impl AsyncRead + Unpin), picture: &mut Picture) -> io::Result<usize> {
    screen.read_u8().await?;
    let mut seen = 0;
    for _ in 0..screen.read_u16().await? {
        let (x, y) = (screen.read_u16().await?, screen.read_u16().await?);
        let (width, height) = (screen.read_u16().await?, screen.read_u16().await?);
        if screen.read_i32().await? != RAW {
            return Err(wrong("an encoding that was not asked for".into()));
        }
        let is_within = |at: u16, length: u16, all: u16| at.checked_add(length).is_some_and(|end| end <= all);
        if !is_within(x, width, picture.width) || !is_within(y, height, picture.height) {
            return Err(wrong("a rectangle beside the screen".into()));
        }
        let mut line = vec![0; usize::from(width) * PIXEL];
        for row in y..y + height {
            screen.read_exact(&mut line).await?;
            picture.put(x, row, &line);
        }
        seen += usize::from(width) * usize::from(height);
    }
    Ok(seen)
}

async fn skip(screen: &mut (impl AsyncRead + Unpin), length: u32) -> io::Result<()> {
    if length > MAX_TEXT {
        return Err(wrong(format!("{length} bytes of text")));
    }
    let skipped = tokio::io::copy(&mut screen.take(length.into()), &mut tokio::io::sink()).await?;
    if skipped < u64::from(length) { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn wrong(what: String) -> io::Error {
    io::Error::other(format!("the screen says {what}"))
}

impl Picture {
    /// Puts a part of a line, which is within the picture.
    fn put(&mut self, x: u16, y: u16, line: &[u8]) {
        let at = (usize::from(y) * usize::from(self.width) + usize::from(x)) * 3;
        let into = self.rgb.get_mut(at..).unwrap_or_default().chunks_exact_mut(3);
        for (to, from) in into.zip(line.chunks_exact(PIXEL)) {
            let [blue, green, red, _] = from else { continue };
            to.copy_from_slice(&[*red, *green, *blue]);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// QEMU's side up to the size.
    async fn greeted(screen: &mut DuplexStream, width: u16, height: u16) -> io::Result<()> {
        screen.write_all(VERSION).await?;
        screen.read_exact(&mut [0; 12]).await?;
        screen.write_all(&[2, 19, NO_LOGIN]).await?;
        screen.read_exact(&mut [0; 1]).await?;
        screen.write_all(&[0; 4]).await?;
        screen.read_exact(&mut [0; 1]).await?;
        screen.write_all(&[width.to_be_bytes(), height.to_be_bytes()].concat()).await?;
        screen.write_all(&FORMAT).await?;
        screen.write_all(&[0, 0, 0, 2, b'v', b'm']).await?;
        // Format, encoding and request.
        screen.read_exact(&mut [0; 20 + 8 + 10]).await?;
        Ok(())
    }

    fn rectangle(x: u16, y: u16, width: u16, height: u16, pixels: &[[u8; 4]]) -> Vec<u8> {
        let mut bytes = [x, y, width, height].map(u16::to_be_bytes).concat();
        bytes.extend(RAW.to_be_bytes());
        bytes.extend(pixels.concat());
        bytes
    }

    async fn looked(size: (u16, u16), said: Vec<u8>) -> io::Result<Picture> {
        let (ours, mut theirs) = duplex(1 << 10);
        let (picture, ()) = tokio::join!(look(ours, false), async move {
            // Who is refused reads no more.
            if greeted(&mut theirs, size.0, size.1).await.is_ok() {
                let _ = theirs.write_all(&said).await;
            }
        });
        picture
    }

    #[tokio::test]
    async fn a_picture_is_put_together_of_its_rectangles() {
        let (red, green, blue) = ([0, 0, 255, 0], [0, 255, 0, 0], [255, 0, 0, 0]);
        let first = [&[0, 0, 0, 1][..], &rectangle(1, 0, 1, 2, &[green, blue])].concat();
        let second = [&[0, 0, 0, 1][..], &rectangle(0, 0, 1, 2, &[red, red])].concat();
        let said = [&[2][..], &[3, 0, 0, 0, 0, 0, 0, 1, b'x'], &first, &second].concat();
        let picture = looked((2, 2), said).await.expect("a picture");
        assert_eq!(picture, Picture { width: 2, height: 2, rgb: vec![255, 0, 0, 0, 255, 0, 255, 0, 0, 0, 0, 255] });
    }

    #[tokio::test]
    async fn the_pointer_is_moved_before_a_look_that_wants_it() {
        let (ours, mut theirs) = duplex(1 << 10);
        let (looked, asked) = tokio::join!(look(ours, true), async move {
            greeted(&mut theirs, 1, 1).await.expect("greeted");
            let mut asked = [0; 12];
            theirs.read_exact(&mut asked).await.expect("asked");
            asked
        });
        assert!(looked.is_err(), "nothing was shown");
        // What `greeted` has taken for the request is the first of what is said.
        assert_eq!(asked, [0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
    }

    #[tokio::test]
    async fn what_a_screen_must_not_say_ends_the_look() {
        for (size, said, why) in [
            ((0, 0), Vec::new(), "0 by 0"),
            ((65_535, 65_535), Vec::new(), "65535 by 65535"),
            ((2, 2), [&[0, 0, 0, 1][..], &rectangle(1, 0, 2, 1, &[])].concat(), "beside the screen"),
            ((2, 2), vec![3, 0, 0, 0, 255, 255, 255, 255], "bytes of text"),
            ((2, 2), vec![77], "message 77"),
            ((2, 2), vec![0, 0], ""),
        ] {
            let error = looked(size, said).await.expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
