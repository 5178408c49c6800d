//! Sessions in a guest beside a plain TCP relay to it: how long a line takes there and back, and how long many bytes take.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::agent_image::tiny_with_agent;
use tests::case::Bed;
use tests::command::command;
use tests::cri;
use tests::forwarded::through;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::wait::wait_for;

use super::exec_client::Talk;
use super::report::{Pair, Row};
use super::{p50, timed};

const PAIRS: usize = 9;
const LINES: usize = 101;
const LINE: &str = "there and back\n";
/// Of which the fastest counts: a busy guest is not what is measured.
const DOWNLOADS: usize = 3;
const MIB: usize = 8;
const ECHO_PORT: u16 = 7000;
/// A port of the guest of the same kind as our agent's: that of QEMU's agent, which is not needed here. Three processes hand each line on,
/// as the agent, a command and the agent again do. While nobody is at the port's other end, what is read from it has ended at once.
const CATS_AT_PORT: &str = "port=/dev/virtio-ports/org.qemu.guest_agent.0; killall -9 qemu-ga; \
                            until (exec 3<>$port) 2>/dev/null; do :; done; exec 3<>$port; echo ready; \
                            while :; do cat <&3 | cat | cat >&3; done";
const DEADLINE: Duration = Duration::from_secs(30);
/// The nodes' ends of ports of guests.
const CONSOLES: &str = "/run/virtlet/console";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let vm = node.start_pod(node.pod("sessions")?, &cri::container(&image, [].into()))?;
    let exec = |words: &[&str]| {
        let begin = ["--socket", CRI_SOCKET, "exec", "-i", vm.container.as_str(), "--"];
        command(bed.program("virtletctl"), [&begin, words].concat())
    };
    let fill = format!("head -c {} /dev/urandom >/run/www/many", MIB << 20);
    wait_for("the guest's agent", BOOT_DEADLINE, || {
        Ok(exec(&["sh", "-c", &fill]).stdin(Stdio::null()).output()?.status.success().then_some(()))
    })?;

    let mut talk = Talk::start(&node.cri, &vm.container, &["cat"])?;
    let mut cat = Talker::start(&mut exec(&["cat"]))?;
    let nc = Talker::start(&mut exec(&["nc", "-l", "-p", &ECHO_PORT.to_string(), "-e", "cat"]))?;
    let echo = relay(Far::Tcp((vm.ip, ECHO_PORT).into()))?;
    let echo = wait_for("an echo behind the relay", DEADLINE, || {
        let mut stream = TcpStream::connect(echo)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        // What listens only later ends the connection.
        let answered = there_and_back(&mut stream.try_clone()?, &mut BufReader::new(&mut stream)).is_ok();
        Ok(answered.then_some(stream))
    })?;
    let (mut to, mut from) = (echo.try_clone()?, BufReader::new(echo));
    let mut at_port = Talker::start(&mut exec(&["sh", "-c", CATS_AT_PORT]))?;
    at_port.from.read_line(&mut String::new())?;
    let echo = TcpStream::connect(relay(Far::Unix(Path::new(CONSOLES).join(format!("{}.agent", vm.machine))))?)?;
    echo.set_nodelay(true)?;
    echo.set_read_timeout(Some(DEADLINE))?;
    let (mut to_port, mut from_port) = (echo.try_clone()?, BufReader::new(echo));
    let [mut trips, mut by_port, mut by_program] = [const { Vec::new() }; 3];
    for _pair in 0..PAIRS {
        let ours = typical(|| talk.there_and_back(LINE))?;
        let baseline = typical(|| there_and_back(&mut to, &mut from))?;
        trips.push(Pair { ours, baseline });
        let port = typical(|| there_and_back(&mut to_port, &mut from_port))?;
        by_port.push(Pair { ours, baseline: port });
        let ours = typical(|| there_and_back(&mut cat.to, &mut cat.from))?;
        by_program.push(Pair { ours, baseline });
    }

    let web = relay(Far::Tcp((vm.ip, 80).into()))?;
    let mut forward =
        command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "port-forward", &vm.container, "0:80"]);
    let loads = through(bed, &mut forward, |port, _said| {
        let forwarded = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        (0..PAIRS).map(|_| Ok(Pair { ours: download(forwarded)?, baseline: download(web)? })).collect::<Result<_>>()
    })?;
    drop((talk, cat, nc, at_port));
    node.remove_vm(&vm, Duration::ZERO)?;
    let row = |name, target, pairs| Row { name, unit: "us", target, pairs };
    Ok(vec![
        row("round trip of exec / TCP relay", Some(1.2), trips),
        row("(… / three processes at a port of the guest)", None, by_port),
        row("(by virtletctl exec / TCP relay)", None, by_program),
        row("MiB through port-forward / TCP relay", Some(1.2), loads),
    ])
}

/// A program that is spoken to through pipes; killed when it is dropped.
struct Talker {
    child: Child,
    to: std::process::ChildStdin,
    from: BufReader<std::process::ChildStdout>,
}

impl Talker {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let to = child.stdin.take().context("no pipe")?;
        let from = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, to, from })
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn there_and_back(to: &mut impl Write, from: &mut impl io::BufRead) -> Result<()> {
    to.write_all(LINE.as_bytes())?;
    to.flush()?;
    let mut line = String::new();
    from.read_line(&mut line)?;
    ensure!(line == LINE, "came back: {line:?}");
    Ok(())
}

/// Microseconds of the trip in the middle.
fn typical(mut trip: impl FnMut() -> Result<()>) -> Result<f64> {
    p50((0..LINES).map(|_| Ok(timed(&mut trip)?.0)).collect::<Result<_>>()?)
}

/// Microseconds for each MiB of the fastest download.
fn download(server: SocketAddr) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..DOWNLOADS {
        let (micros, bytes) = timed(|| get(server))?;
        ensure!(bytes > (MIB as u64) << 20, "{bytes} bytes of {MIB} MiB");
        least = least.min(micros);
    }
    Ok(least / MIB as f64)
}

fn get(server: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(stream, "GET /many HTTP/1.0\r\n\r\n")?;
    Ok(io::copy(&mut stream.take(2 * ((MIB as u64) << 20)), &mut io::sink())?)
}

/// What a relay leads to.
#[derive(Debug, Clone)]
enum Far {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A relay to a server, for as long as the bench runs: it copies in the kernel, and knows nothing of what passes.
fn relay(to: Far) -> Result<SocketAddr> {
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0))?;
    let at = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let to = to.clone();
            thread::spawn(move || -> io::Result<()> {
                client.set_nodelay(true)?;
                match to {
                    Far::Tcp(to) => {
                        let server = TcpStream::connect(to)?;
                        server.set_nodelay(true)?;
                        relayed(client, [server.try_clone()?, server], TcpStream::shutdown)
                    }
                    Far::Unix(to) => {
                        let server = UnixStream::connect(to)?;
                        relayed(client, [server.try_clone()?, server], UnixStream::shutdown)
                    }
                }
            });
        }
    });
    Ok(at)
}

fn relayed<S: Read + Write + Send + 'static>(
    client: TcpStream,
    [mut from_server, mut to_server]: [S; 2],
    shutdown: fn(&S, Shutdown) -> io::Result<()>,
) -> io::Result<()> {
    let mut client_again = client.try_clone()?;
    let back = thread::spawn(move || {
        let copied = io::copy(&mut from_server, &mut client_again);
        let _ = client_again.shutdown(Shutdown::Both);
        copied
    });
    let mut from = client;
    io::copy(&mut from, &mut to_server)?;
    shutdown(&to_server, Shutdown::Write)?;
    back.join().map_err(|_panic| io::Error::other("the relay panicked"))?.map(drop)
}
