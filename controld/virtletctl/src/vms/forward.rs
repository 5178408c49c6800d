//! `port-forward`: local ports, or our standard input and output, that lead to ports of a VM through the API server.

use std::io::Write;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::join::join;
use super::reach::Vm;
use crate::cli::VmPortForward;
use crate::error::{CtlError, Line};
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
        return interrupt.ends(join(stream, tokio::io::stdin(), &mut tokio::io::stdout())).await;
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

/// Carries a connection to its end.
async fn carry(vm: &Vm, stream: TcpStream, port: u16) {
    // Only typing would be slower without it.
    let _ = stream.set_nodelay(true);
    let (says, mut sees) = stream.into_split();
    let joined = match vm.port(port).await {
        Ok(stream) => join(stream, says, &mut sees).await,
        Err(error) => Err(error.into()),
    };
    match joined {
        Ok(()) => drop(sees.shutdown().await),
        Err(error) => {
            tell_line(&format!("connection to port {port}: {}", Line(&error)));
            // Not to be taken for all that the VM had to say.
            let _ = sees.as_ref().set_zero_linger();
            sees.forget();
        }
    }
}
