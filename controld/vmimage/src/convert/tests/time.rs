//! Who waits for a check, and how long.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Long enough for a thread to notice, however busy the machine is.
const NOTICED: Duration = Duration::from_secs(60);

/// Zeros without end, each read of which is told.
struct Endless(Sender<()>);

impl Bytes for Endless {
    fn read(&self, _: u64, room: &mut [u8]) -> io::Result<usize> {
        let _ = self.0.send(());
        room.fill(0);
        Ok(room.len())
    }
}

/// Reads until that fails; all that was told is then at its end.
fn read_on(bytes: &impl Bytes) -> io::Error {
    loop {
        if let Err(error) = bytes.read(0, &mut [0; 512]) {
            return error;
        }
        std::thread::yield_now();
    }
}

/// Whether the one who tells goes away.
fn ends(told: &Receiver<()>) {
    while told.recv_timeout(NOTICED).is_ok() {}
    assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected), "it goes on");
}

#[tokio::test]
async fn who_waits_too_long_gets_a_word_and_the_thread_ends() {
    let (tell, told) = channel();
    let waited = on_thread(Endless(tell), Duration::from_millis(50), read_on).await;
    assert!(waited.is_err(), "it was given up");
    tokio::task::spawn_blocking(move || ends(&told)).await.expect("it ended");
}

#[tokio::test]
async fn a_check_ends_with_who_waits_for_it() {
    let (tell, told) = channel();
    let waiting = tokio::spawn(on_thread(Endless(tell), Duration::from_secs(3600), read_on));
    let told = tokio::task::spawn_blocking(move || {
        told.recv_timeout(NOTICED).expect("it reads");
        told
    });
    let told = told.await.expect("it reads");
    waiting.abort();
    tokio::task::spawn_blocking(move || ends(&told)).await.expect("it ended");
}

#[tokio::test]
async fn a_conversion_without_time_is_late() {
    let (_dir, image) = made(ForeignFormat::Vdi, "");
    let mut input = tempfile().expect("a file");
    input.write_all(&image).expect("written");
    let limits = ConvertLimits { time: Duration::ZERO, ..ConvertLimits::default() };
    let late = Converter::new(QEMU_IMG, limits).convert(ForeignFormat::Vdi, &input, &tempfile().expect("a file")).await;
    let late = late.expect_err("late");
    assert_eq!(late.kind(), ErrorKind::Deadline);
    assert_eq!(late.to_string(), "converting a VDI image took longer than 0 s");
}
