//! `port-forward`: local ports, or our standard input and output, that lead to ports of a VM through the API server.

use std::io::Write;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::join::{End, Linger, join};
use super::reach::Vm;
use crate::cli::VmPortForward;
use crate::cluster::stream::Stream;
use crate::error::{ClusterError, CtlError, Line, Lost};
use crate::forward;
use crate::interrupt::Interrupt;
use crate::tell::tell_line;

pub(super) async fn run(
    wanted: &VmPortForward,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let vm = Vm::of(&wanted.at, std::slice::from_ref(&wanted.name)).await?;
    if wanted.stdio {
        let [ports] = wanted.ports[..] else {
            return Err(CtlError::Usage("with --stdio there is one port".into()));
        };
        let stream = vm.port(ports.remote).await?;
        return interrupt.ends(over_stdio(stream)).await;
    }
    let vm = Arc::new(vm);
    let carry = move |stream, port| {
        let vm = Arc::clone(&vm);
        async move { carry(&vm, stream, port).await }
    };
    interrupt
        .ends(forward::listen_all((&wanted.ports[..], &wanted.addresses[..]), out, carry, std::future::pending()))
        .await
}

async fn over_stdio(stream: Stream) -> Result<(), CtlError> {
    match join(stream, tokio::io::stdin(), &mut tokio::io::stdout(), Linger::PORT).await? {
        End::Silent(silence) => Err(ClusterError::Stream(Lost::Unfinished(silence)).into()),
        End::Vm | End::Us => Ok(()),
    }
}

/// Carries a connection to its end.
async fn carry(vm: &Vm, stream: TcpStream, port: u16) {
    // Only typing would be slower without it.
    let _ = stream.set_nodelay(true);
    let (says, mut sees) = stream.into_split();
    let joined = match vm.port(port).await {
        Ok(stream) => join(stream, says, &mut sees, Linger::PORT).await,
        Err(error) => Err(error.into()),
    };
    match joined {
        Ok(End::Vm) => return drop(sees.shutdown().await),
        // So ends each connection whose client has gone.
        Ok(End::Us | End::Silent(_)) => {}
        Err(error) => tell_line(&format!("connection to port {port}: {}", Line(&error))),
    }
    // Not to be taken for all that the VM had to say.
    let _ = sees.as_ref().set_zero_linger();
    sees.forget();
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::cluster::tests::{Api, ENDS, STREAM, cluster, nowhere};

    #[tokio::test]
    async fn what_may_not_be_whole_does_not_look_whole() {
        let api = Api::start().await;
        api.answers("GET ", STREAM, &format!("{ENDS}connection refused"));
        let cluster = cluster(&api.at, &nowhere());
        let vm = Vm { cluster, kind: None, namespace: "default".into(), name: "web".into() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (accepted, _) = listener.accept().await.expect("accepted");
        carry(&vm, accepted, 80).await;
        let read = client.read(&mut [0]).await;
        assert_eq!(read.expect_err("it is reset").kind(), ErrorKind::ConnectionReset);
    }
}
