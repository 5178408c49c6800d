//! `vnc` and `screenshot` of a VM of a cluster: its screen at a local port or in a browser until the user leaves, or as a picture.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::join::{Linger, join};
use super::reach::Vm;
use crate::browser::{self, Opened, Pages};
use crate::cli::{VmScreenshot, VmVnc};
use crate::cluster::Ask;
use crate::cluster::stream::{By, Stream};
use crate::error::{ClusterError, CtlError, Line, Lost};
use crate::interrupt::Interrupt;
use crate::kubeconfig::At;
use crate::ready::late;
use crate::text::shown;

/// The word behind `vnc` that makes a picture of it.
const SCREENSHOT: &str = "screenshot";
/// For a VM that begins to run.
const BEGIN: Duration = Duration::from_secs(300);
/// For the first word of a screen, and for its end.
const SPEAK: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(5);
const SHOW: &str = "show the screen of";

/// A VM that has a screen, or may have one.
struct Screen {
    vm: Vm,
    pages: Pages,
}

pub(super) async fn vnc(wanted: &VmVnc, out: &mut (dyn Write + Send), interrupt: &Interrupt) -> Result<(), CtlError> {
    if let [first, name @ ..] = &wanted.name[..]
        && first == SCREENSHOT
        && !name.is_empty()
    {
        return picture(&wanted.at, name, wanted.file.as_deref(), wanted.move_cursor, out).await;
    }
    if wanted.file.is_some() || wanted.move_cursor {
        let text = "--file and --move-cursor are of `vnc screenshot NAME`";
        return Err(CtlError::Usage(text.into()));
    }
    interrupt.ends(show(wanted, out)).await
}

pub(super) async fn screenshot(wanted: &VmScreenshot, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    picture(&wanted.vm.at, &wanted.vm.name, wanted.file.as_deref(), wanted.move_cursor, out).await
}

async fn picture(
    at: &At,
    name: &[String],
    path: Option<&Path>,
    moves_cursor: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let vm = Vm::of(at, name).await?;
    let path = path.map_or_else(|| PathBuf::from(format!("{}.png", vm.name)), Path::to_owned);
    let to_output = path.as_os_str() == "-";
    if to_output && io::stdout().is_terminal() {
        return Err(CtlError::Usage("a picture is nothing for a terminal; name a file".into()));
    }
    let from = vm.path(&format!("vnc/screenshot?moveCursor={moves_cursor}"));
    let action = format!("make a picture of the screen of `{}`", vm.whole());
    let ask = Ask {
        action: &action,
        method: Method::GET,
        path: &from,
        accept: Some("image/png, application/json"),
        body: None,
    };
    let picture = vm.cluster.call(ask).await?;
    if to_output {
        out.write_all(&picture)?;
        return Ok(out.flush()?);
    }
    let failed = |cause| CtlError::File { action: "write", path: path.clone(), cause };
    File::create(&path).and_then(|mut file| file.write_all(&picture)).map_err(failed)
}

async fn show(wanted: &VmVnc, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    if wanted.browser {
        browser::built_in()?;
    }
    let screen = Screen { vm: Vm::of(&wanted.at, &wanted.name).await?, pages: Pages::default() };
    // Once, so that a VM that is off, or is viewed, is told before somebody starts a viewer.
    screen.look(!wanted.preserve_session).await?;
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wanted.port);
    let listener = TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })?;
    let whole = screen.vm.whole();
    if wanted.browser {
        return browser::serve(listener, &whole, Arc::new(screen), out).await;
    }
    let local = listener.local_addr()?;
    if wanted.proxy_only {
        // For programs, by virtctl's key.
        writeln!(out, "{{\"port\":{}}}", local.port())?;
    } else {
        writeln!(out, "Screen of {} at {local}, until Ctrl-C", shown(&whole))?;
    }
    out.flush()?;
    loop {
        let (viewer, _) = listener.accept().await?;
        // One at a time: a second viewer waits.
        if let Err(error) = screen.show_to(viewer).await
            && !wanted.proxy_only
        {
            writeln!(out, "viewer left: {}", Line(&error))?;
            out.flush()?;
        }
    }
}

impl Screen {
    /// How it is asked for: from a page or a viewer of ours that is about to leave it, or has just left, it is taken; from nobody else.
    fn verb(&self, takes: bool) -> &'static str {
        if takes || self.pages.may_have_it() { "vnc" } else { "vnc?preserveSession=true" }
    }

    /// The stream, with our seat in front of the screen.
    fn seated(&self, stream: Stream) -> Stream {
        let Stream { read, write, ended } = stream;
        let seat = self.pages.seat();
        let ended = async move {
            let ended = ended.await;
            // A node learns a moment late that we have left.
            if matches!(ended, Ok(By::Server) | Err(ClusterError::Stream(Lost::Told(_)))) {
                seat.ends();
            }
            ended
        };
        Stream { read, write, ended: Box::pin(ended) }
    }

    async fn open(&self) -> Result<Stream, CtlError> {
        Ok(self.seated(self.vm.stream(SHOW, self.verb(false)).await?))
    }

    /// Whether the screen speaks; then it is left, and is free for who comes from here next.
    async fn look(&self, takes: bool) -> Result<(), CtlError> {
        let Stream { mut read, write, ended } = self.seated(self.vm.awaited(SHOW, self.verb(takes), BEGIN).await?);
        let what = format!("the first word of the screen of `{}`", self.vm.whole());
        let first = async { Ok(read.read(&mut [0]).await.unwrap_or(0)) };
        if late(what, SPEAK, first).await? == 0 {
            timeout(END, ended).await.unwrap_or(Ok(By::Server))?;
            return Err(CtlError::Answer { action: format!("{SHOW} `{}`", self.vm.whole()), lacks: "screen" });
        }
        drop(write);
        // That we leave is told, or the connection is cut.
        let left = async {
            let mut rest = [0; 1 << 10];
            while !matches!(read.read(&mut rest).await, Ok(0) | Err(_)) {}
        };
        let _ = timeout(END, left).await;
        Ok(())
    }

    async fn show_to(&self, viewer: TcpStream) -> Result<(), CtlError> {
        viewer.set_nodelay(true)?;
        let stream = self.open().await?;
        let (says, mut sees) = viewer.into_split();
        let joined = join(stream, says, &mut sees, Linger::NONE).await;
        // A viewer that is gone does not mind.
        let _ = sees.shutdown().await;
        joined.map(drop)
    }
}

impl browser::Streams for Screen {
    fn screen(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        Box::pin(async { Ok(opened(self.open().await?)) })
    }

    fn console(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        Box::pin(async { Ok(opened(self.vm.stream("attach to the console of", "console").await?)) })
    }
}

fn opened(stream: Stream) -> Opened {
    let Stream { read, write, ended } = stream;
    Opened { read, write, ended: Box::pin(async move { Ok(ended.await.map(drop)?) }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browser::Streams as _;
    use crate::cluster::tests::{Api, ENDS, STREAM, cluster, nowhere};

    const VNC: &str = "GET /apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/web/vnc";
    const RFB: &str = "RFB 003.008\n";

    fn screen(api: &Api) -> Screen {
        let cluster = cluster(&api.at, &nowhere());
        let vm = Vm { cluster, kind: None, namespace: "default".into(), name: "web".into() };
        Screen { vm, pages: Pages::default() }
    }

    #[tokio::test]
    async fn viewers_see_the_screen_one_after_the_other() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, RFB);
        let screen = screen(&api);
        screen.look(false).await.expect("it speaks");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        for _ in 0..2 {
            let mut viewer = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
            let (accepted, _) = listener.accept().await.expect("accepted");
            let sees = async move {
                viewer.write_all(b"keys").await.expect("written");
                let mut seen = [0; 16];
                viewer.read_exact(&mut seen).await.expect("read");
                assert_eq!(&seen, b"RFB 003.008\nKEYS");
            };
            let (shown, ()) = tokio::join!(screen.show_to(accepted), sees);
            shown.expect("it left");
        }
        // From us it may be taken: we have just looked, or viewed it.
        assert_eq!(api.asked(), [format!("{VNC}?preserveSession=true"), VNC.to_owned(), VNC.to_owned()]);
    }

    #[tokio::test]
    async fn a_page_has_both_streams() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, RFB);
        let screen = screen(&api);
        let mut opened = screen.screen().await.expect("a stream");
        let mut first = [0; 12];
        opened.read.read_exact(&mut first).await.expect("read");
        assert_eq!(first, RFB.as_bytes());
        drop(opened);
        let mut opened = screen.console().await.expect("a stream");
        opened.write.write_all(b"ls").await.expect("written");
        let mut all = [0; 14];
        opened.read.read_exact(&mut all).await.expect("read");
        assert_eq!(&all, b"RFB 003.008\nLS");
        drop(opened.write);
        opened.ended.await.expect("in order");
    }

    #[tokio::test]
    async fn a_screen_that_is_not_to_be_had_is_told() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, &format!("{ENDS}somebody else views it"));
        let told = screen(&api).look(true).await.expect_err("it ends");
        assert_eq!(common::Chain(&told).to_string(), "stream of the VM ended: somebody else views it");
        assert_eq!(api.asked(), [VNC]);
        let status = "{\"kind\":\"Status\",\"message\":\"no screen\"}";
        api.answers("GET ", 409, status);
        let told = screen(&api).look(true).await.expect_err("it is refused");
        assert_eq!(
            (told.to_string().as_str(), told.exit_code()),
            ("failed to show the screen of `default/web`: no screen", 69)
        );
    }
}
