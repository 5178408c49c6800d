use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use streaming::{AttachRequest, Backend, Config, Server, Session, SessionError};

use super::*;

/// A machine that greets, echoes, and ends at `q`.
#[derive(Debug, Default)]
struct Echo {
    typed: Mutex<Vec<u8>>,
}

impl Backend for Echo {
    fn attach<'a>(&'a self, id: &'a str, session: Session) -> BoxFuture<'a, Result<(), SessionError>> {
        async move {
            let (mut stdin, mut stdout) = (session.stdin.expect("asked for"), session.stdout.expect("asked for"));
            stdout.write_all(b"login: ").await?;
            stdout.flush().await?;
            let mut buffer = [0; 64];
            loop {
                let read = stdin.read(&mut buffer).await?;
                let typed = &buffer[..read];
                self.typed.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(typed);
                stdout.write_all(typed).await?;
                stdout.flush().await?;
                if id == "fails" {
                    return Err("machine burnt".into());
                }
                if read == 0 || typed.contains(&b'q') {
                    return Ok(());
                }
            }
        }
        .boxed()
    }
}

/// Talks to a machine; says how that ended, what was shown and what was typed.
async fn talked(id: &str, input: &'static [u8], leaves: bool) -> (Result<Ended, CtlError>, String, String) {
    let echo = Arc::new(Echo::default());
    let config = Config::at("127.0.0.1:0".parse().expect("address"));
    let server = Server::bind(config, echo.clone()).await.expect("server");
    let wanted = AttachRequest {
        container_id: id.into(),
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
        stdin_once: false,
    };
    let url = server.attach_url(wanted).expect("url");
    let options = Options { stdin: true, stdout: true, stderr: false, tty: true };
    let session = attach(&url, options).await.expect("session");
    let (keys, typed) = mpsc::channel(1);
    keys.send(Bytes::from_static(input)).await.expect("room");
    if !leaves {
        drop(keys);
    } else {
        // A terminal stays open; its sender must outlive the session.
        std::mem::forget(keys);
    }
    let mut out = Vec::new();
    let ended = timeout(Duration::from_secs(20), talk(session, typed, leaves, &mut out)).await.expect("in time");
    let typed = echo.typed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (ended, String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&typed).into_owned())
}

#[tokio::test]
async fn keys_reach_the_machine_and_its_end_ends_it() {
    let (ended, shown, typed) = talked("m", b"ls\rq", true).await;
    assert_eq!(ended.expect("well"), Ended::Machine);
    assert_eq!((shown.as_str(), typed.as_str()), ("login: ls\rq", "ls\rq"));
}

#[tokio::test]
async fn the_leaving_key_is_not_typed() {
    let (ended, _, typed) = talked("m", b"\x1dabc", true).await;
    assert_eq!(ended.expect("well"), Ended::User);
    assert_eq!(typed, "");
}

#[tokio::test]
async fn input_that_is_no_terminal_is_sent_whole_and_then_ends() {
    let (ended, shown, typed) = talked("m", b"a\x1db", false).await;
    assert_eq!(ended.expect("well"), Ended::Machine);
    assert_eq!((shown.as_str(), typed.as_str()), ("login: a\u{1d}b", "a\u{1d}b"));
}

#[tokio::test]
async fn a_session_that_fails_says_why() {
    let (ended, ..) = talked("fails", b"x", true).await;
    assert!(common::Chain(&ended.expect_err("burnt")).to_string().contains("machine burnt"));
}
