//! What is known of a guest, and of the cluster's server of VMs' verbs. For programs: JSON or YAML, as the server says it.

use std::io::Write;

use serde_json::{Value, json};

use super::reach::Vm;
use crate::cli::{Form, Told, VmTell, VmVersion};
use crate::cluster::Cluster;
use crate::document;
use crate::error::CtlError;
use crate::text::shown;

/// `guestosinfo` and its like, by the name that the server has for it.
pub(super) async fn of_guest(verb: &str, wanted: &VmTell, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let vm = Vm::of(&wanted.vm.at, &wanted.vm.name).await?;
    let action = format!("read {verb} of `{}`", vm.whole());
    let value = vm.cluster.json(&action, &vm.path(verb), None).await?;
    print(value, wanted.output, out)
}

/// `version`: ours also if the cluster cannot be asked, which is an error then.
pub(super) async fn version(wanted: &VmVersion, ours: &str, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let server = if wanted.client { Ok(None) } else { server(wanted).await.map(Some) };
    let told = server.as_ref().ok().and_then(Option::as_ref);
    match wanted.output {
        Some(form) => {
            let client = json!({ "name": "virtletctl", "version": ours });
            print(json!({ "client": client, "server": told }), form, out)?;
        }
        None => {
            writeln!(out, "Client: virtletctl {ours}")?;
            if let Some(server) = told {
                writeln!(out, "Server: {}", shown(server["gitVersion"].as_str().unwrap_or("unknown")))?;
            }
            out.flush()?;
        }
    }
    server.map(drop)
}

async fn server(wanted: &VmVersion) -> Result<Value, CtlError> {
    let cluster = Cluster::connect(&wanted.at).await?;
    Ok(cluster.json("read the server's version", &cluster.version(), None).await?)
}

fn print(value: Value, form: Told, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let form = if form == Told::Yaml { Form::Yaml } else { Form::Json };
    out.write_all(document::of(value, form)?.as_bytes())?;
    Ok(out.flush()?)
}
