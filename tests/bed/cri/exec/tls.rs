//! A streaming server that speaks TLS.

use std::fs;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::cri;
use tests::node::{BOOT_DEADLINE, Node};
use tests::peers::tls::{Authority, Signed};
use tests::wait::wait_guest;

use super::{Exec, GRACE};

/// Commands through QEMU's agent, whose output comes by the streaming server.
pub(super) fn sessions(bed: &Bed) -> Result<()> {
    let authority = Authority::new()?;
    let written = |name: &str, text: &str| -> Result<String> {
        let path = bed.dir.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let ca = written("ca.crt", &authority.certificate)?;
    let Signed { certificate, key } = authority.server(&["127.0.0.1", "localhost"])?;
    let (certificate, key) = (written("tls.crt", &certificate)?, written("tls.key", &key)?);
    let node = Node::configured(bed, &format!("[streaming]\ncertificate = '{certificate}'\nkey = '{key}'\n"))?;
    let vm = node.start_pod(node.pod("tls")?, &cri::container(&node.pull(bed, "tiny.qcow2")?, [].into()))?;
    let exec = Exec { bed, id: &vm.container };
    wait_guest("QEMU's agent", BOOT_DEADLINE, || Ok((exec.shell("exec -s $id true")?.code == Some(0)).then_some(())))?;
    // crictl insists on a certificate of its own, which the server does not ask for.
    let Signed { certificate, key } = authority.client()?;
    let (certificate, key) = (written("client.crt", &certificate)?, written("client.key", &key)?);
    for transport in ["spdy", "websocket"] {
        let options = format!("-r {transport} --tls-ca {ca} --tls-cert {certificate} --tls-key {key}");
        exec.prints(&format!("exec {options} $id echo said"), "said")?;
    }
    exec.prints(&format!("SSL_CERT_FILE={ca} ctl exec $id echo said"), "said")?;
    let stranger = exec.shell("ctl exec $id true")?;
    ensure!(stranger.code != Some(0) && stranger.stderr.contains("certificate"), "{stranger:?}");
    node.remove_vm(&vm, GRACE)
}
