//! A tapmanager of one answer.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{JoinHandle, spawn};

use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, bind, listen, shutdown, socket,
};
use proto::tap::{
    ErrorBody, Handoff, HandoffNic, HandoffReply, HandoffRequest, HandoffTap, MacAddr, Token, decode_request,
    encode_reply, recv, send,
};

/// What the server does with a request.
pub(crate) enum Answer {
    /// These NICs, with so many descriptors beside them: of `/dev/zero`, `/dev/full` and `/dev/random`.
    Nics(Handoff, usize),
    /// No, and why.
    Refusal(ErrorBody),
    /// These bytes, no descriptors.
    Packet(Vec<u8>),
    /// Closes.
    HangUp,
    /// Waits for the peer to go.
    Silence,
}

/// Takes connections at a path of its own.
pub(crate) struct Server {
    pub(crate) path: PathBuf,
    listener: OwnedFd,
    thread: JoinHandle<Option<Token>>,
    _dir: tempfile::TempDir,
}

impl Server {
    /// Takes one connection.
    pub(crate) fn start(answer: Answer) -> Self {
        Self::answering(vec![answer])
    }

    /// Takes as many connections as there are answers, one after the other.
    pub(crate) fn answering(answers: Vec<Answer>) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("handoff.sock");
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("address")).expect("bind");
        listen(&listener, Backlog::new(4).expect("backlog")).expect("listen");
        let accepting = UnixListener::from(listener.try_clone().expect("dup"));
        let thread = spawn(move || {
            let mut last = None;
            for answer in answers {
                // Fails once the listener is shut down: nobody came.
                let Ok((connection, _)) = accepting.accept() else { break };
                last = Some(serve(&OwnedFd::from(connection), answer));
            }
            last
        });
        Self { path, listener, thread, _dir: dir }
    }

    /// The token that was last asked with; `None` if nobody asked.
    pub(crate) fn requested(self) -> Option<Token> {
        shutdown(self.listener.as_raw_fd(), Shutdown::Both).expect("shutdown");
        self.thread.join().expect("the server does not panic")
    }
}

/// NICs with these numbers of queues.
pub(crate) fn nics(queues: &[u16]) -> Handoff {
    let mac = |index: usize| MacAddr::new([2, 0, 0, 0, 0, u8::try_from(index).expect("few")]).expect("mac");
    let nic = |(index, &queues)| HandoffNic::Tap(HandoffTap { mac: mac(index), mtu: 1450, queues, vhost: 0 });
    Handoff { nics: queues.iter().enumerate().map(nic).collect(), iommufd: false }
}

fn serve(connection: &OwnedFd, answer: Answer) -> Token {
    let request = recv(connection.as_fd()).expect("a request");
    let HandoffRequest::Get { token } = decode_request(&request.bytes, request.fds.len()).expect("of the protocol");
    match answer {
        Answer::Nics(handoff, count) => {
            let files: Vec<File> = ["/dev/zero", "/dev/full", "/dev/random"]
                .iter()
                .take(count)
                .map(|path| File::open(path).expect("opens"))
                .collect();
            let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            let announced = handoff.descriptors();
            let packet = encode_reply(Ok(&HandoffReply::Nics(handoff)), announced).expect("encodes");
            send(connection.as_fd(), &packet, &fds).expect("sends");
        }
        Answer::Refusal(body) => {
            let packet = encode_reply::<HandoffReply>(Err(body), 0).expect("encodes");
            send(connection.as_fd(), &packet, &[]).expect("sends");
        }
        Answer::Packet(packet) => send(connection.as_fd(), &packet, &[]).expect("sends"),
        Answer::HangUp => {}
        Answer::Silence => {
            recv(connection.as_fd()).expect_err("the peer asks once");
        }
    }
    token
}
