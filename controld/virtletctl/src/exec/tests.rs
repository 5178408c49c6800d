use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use streaming::client::{Options, attach};
use streaming::{Backend, Config, ExecRequest, Otherwise, Server, Session, SessionError, TermSize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;

/// controld's words, which are from `Link::start`.
const NOT_STARTED: &str = "the guest's agent did not start the command: failed to start `x`: ";

/// Runs commands of a guest that knows few.
#[derive(Debug, Default)]
struct Guest {
    sizes: Mutex<Vec<(u16, u16)>>,
}

impl Backend for Guest {
    fn attach<'a>(&'a self, _: &'a str, _: Session) -> BoxFuture<'a, Result<(), SessionError>> {
        async { Err("no console".into()) }.boxed()
    }

    fn exec<'a>(&'a self, request: &'a ExecRequest, session: Session) -> BoxFuture<'a, Result<u8, SessionError>> {
        async move {
            let Session { mut stdin, mut stdout, mut stderr, mut resize, .. } = session;
            match request.cmd[0].as_str() {
                "both" => {
                    stdout.as_mut().expect("stdout").write_all(b"out").await?;
                    stderr.as_mut().expect("stderr").write_all(b"err").await?;
                    Ok(3)
                }
                "cat" => {
                    let mut typed = Vec::new();
                    stdin.as_mut().expect("stdin").read_to_end(&mut typed).await?;
                    stdout.as_mut().expect("stdout").write_all(&typed).await?;
                    Ok(0)
                }
                "flood" => {
                    stdout.as_mut().expect("stdout").write_all(&vec![b'x'; 3 << 20]).await?;
                    Ok(255)
                }
                // It reads nothing, and goes on when its output is closed.
                "quiet" => {
                    drop((stdin.take(), stdout.take(), stderr.take()));
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    Ok(7)
                }
                "sizes" => {
                    assert!(stderr.is_none(), "a terminal has one output");
                    for _ in 0..2 {
                        let size = resize.as_mut().expect("resize").next().await.expect("size");
                        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
                        sizes.push((size.width, size.height));
                    }
                    Ok(0)
                }
                "nosuch" => Err(format!("{NOT_STARTED}No such file or directory (os error 2)").into()),
                "locked" => Err(format!("{NOT_STARTED}Permission denied (os error 13)").into()),
                _ => Err("no agent answers in the guest".into()),
            }
        }
        .boxed()
    }
}

/// Runs a command with an input that never ends if there is none; says how it ended, and what was shown apart.
async fn ran(
    guest: Arc<Guest>,
    cmd: &str,
    tty: bool,
    input: Option<&'static [u8]>,
) -> (Result<u8, CtlError>, String, String) {
    let config = Config::at("127.0.0.1:0".parse().expect("address"));
    let server = Server::bind(config, guest).await.expect("server");
    let options = Options { stdin: true, stdout: true, stderr: !tty, tty };
    let request = ExecRequest {
        container_id: "m".into(),
        cmd: vec![cmd.into()],
        stdin: true,
        stdout: true,
        stderr: !tty,
        tty,
        otherwise: Otherwise::default(),
    };
    let url = server.exec_url(request).expect("url");
    let session = attach(&url, options).await.expect("session");
    let (keys, typed) = mpsc::channel(1);
    let keys = match input {
        Some(bytes) => {
            keys.send(Bytes::from_static(bytes)).await.expect("room");
            drop(keys);
            None
        }
        None => Some(keys),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut sizes = vec![TermSize { width: 100, height: 30 }].into_iter();
    let resized = async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        match sizes.next() {
            Some(size) => Some(size),
            None => std::future::pending().await,
        }
    };
    let streams = Streams { input: typed, out: &mut out, err: &mut err };
    let carried = carry(session, streams, Some(TermSize { width: 80, height: 24 }), resized);
    let ended = timeout(Duration::from_secs(20), carried).await.expect("in time");
    drop(keys);
    (ended, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

#[tokio::test]
async fn a_command_has_two_outputs_and_an_exit_code() {
    let (code, out, err) = ran(Arc::default(), "both", false, None).await;
    assert_eq!((code.expect("well"), out.as_str(), err.as_str()), (3, "out", "err"));
}

#[tokio::test]
async fn input_reaches_the_command_with_its_end() {
    let (code, out, _) = ran(Arc::default(), "cat", false, Some(b"a\x1d\x03b")).await;
    assert_eq!((code.expect("well"), out.as_str()), (0, "a\u{1d}\u{3}b"), "no key is ours");
}

#[tokio::test]
async fn all_output_comes_before_the_end() {
    let (code, out, _) = ran(Arc::default(), "flood", false, None).await;
    assert_eq!((code.expect("well"), out.len()), (255, 3 << 20));
}

#[tokio::test]
async fn a_command_that_closed_its_streams_is_waited_for() {
    assert_eq!(ran(Arc::default(), "quiet", false, Some(b"x")).await.0.expect("well"), 7);
}

#[tokio::test]
async fn a_terminal_tells_its_size_at_first_and_when_it_changes() {
    let guest = Arc::new(Guest::default());
    assert_eq!(ran(guest.clone(), "sizes", true, None).await.0.expect("well"), 0);
    assert_eq!(*guest.sizes.lock().unwrap_or_else(PoisonError::into_inner), [(80, 24), (100, 30)]);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_says_why() {
    let error = ran(Arc::default(), "none", false, None).await.0.expect_err("no agent");
    assert_eq!(error.exit_code(), 1);
    assert!(common::Chain(&error).to_string().contains("no agent answers in the guest"), "{error:?}");
}

#[tokio::test]
async fn a_command_that_the_guest_does_not_start_ends_as_in_a_shell() {
    for (cmd, code) in [("nosuch", 127), ("locked", 126)] {
        let error = ran(Arc::default(), cmd, false, None).await.0.expect_err("not started");
        assert_eq!(error.exit_code(), code, "{cmd}");
        assert!(common::Chain(&error).to_string().contains("failed to start `x`"), "{error:?}");
    }
}
