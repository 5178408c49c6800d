//! `explain`: what a pod's machine has, setting by setting, and who said so; `validate`: the same of a pod that there is not yet, and
//! why it would be refused.

use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use proto::cri::StatusResponse;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::cli;
use super::client::Client;
use super::describe::info;
use super::doctor::find_program;
use super::document;
use super::error::CtlError;
use super::find::Node;
use super::kind;
use super::text::{shown, table};

/// How long the daemon may take to say what machines run on; without its word, `controld validate` goes by the node's devices.
const ASKED: Duration = Duration::from_secs(5);

pub(super) async fn run(client: &Client, wanted: &cli::Explain, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let found = node.find_container(&wanted.pod, wanted.container.as_deref());
    let (pod, container) = found.map_err(|error| or_fields(error, &wanted.pod))?;
    let told = client.container_in_full(&container.id).await?;
    let settings = info(&told.info).get("settings").cloned().unwrap_or_default();
    let Some(list) = settings.as_array() else {
        return Err(CtlError::NotExplained(shown(&pod.name())));
    };
    if let Some(form) = wanted.output.form() {
        let document = json!({ "pod": pod.name(), "settings": settings });
        out.write_all(document::of(document, form)?.as_bytes())?;
    } else {
        let text = |setting: &Value, key: &str| setting.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let row = |setting: &Value| ["name", "value", "from"].map(|key| text(setting, key));
        let rows: Vec<_> = list.iter().map(row).collect();
        out.write_all(table(["SETTING", "VALUE", "FROM"], &rows).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// By `explain pods`, who knows kubectl means the fields that a pod may have.
fn or_fields(error: CtlError, text: &str) -> CtlError {
    let word = text.split('.').next().unwrap_or_default();
    match error {
        CtlError::NoPod { .. } if kind::is_kind(word) => CtlError::Usage(
            "`virtletctl explain POD` tells what a pod's machine has; docs/annotations.md tells what a pod may say"
                .into(),
        ),
        error => error,
    }
}

/// Becomes `controld validate`, which has the rules: so both are of one version, or it says that it does not know the command.
pub(super) async fn validate(wanted: &cli::Validate, socket: &Path) -> CtlError {
    let program = match find_program("controld") {
        Ok(program) => program,
        Err(cause) => {
            return CtlError::Terminal { action: "find controld, which has the rules", cause: io::Error::other(cause) };
        }
    };
    let mut command = Command::new(program);
    command.args(wanted.config.iter().flat_map(|config| ["--config".as_ref(), config.as_os_str()]));
    command.arg("validate").args(wanted.json.then_some("--json"));
    // Another configuration is of another node.
    if wanted.config.is_none()
        && let Some(accel) = accelerator(socket).await
    {
        command.args(["--accel", accel]);
    }
    command.arg("--").args(&wanted.files).args(&wanted.filenames);
    CtlError::Terminal { action: "run `controld validate`", cause: command.exec() }
}

/// What the node's daemon has found machines to run on, if it answers and knows.
async fn accelerator(socket: &Path) -> Option<&'static str> {
    let asked = async { Client::connect(socket).await?.status_in_full().await };
    said(&timeout(ASKED, asked).await.ok()?.ok()?)
}

/// It says the word and, behind it, the reason.
fn said(status: &StatusResponse) -> Option<&'static str> {
    let facts: Value = serde_json::from_str(status.info.get("virtlet")?).ok()?;
    let word = facts.get("accelerator")?.as_str()?.split(' ').next()?;
    ["kvm", "qemu"].into_iter().find(|known| *known == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_word_on_what_machines_run_on_is_read() {
        let status = |accelerator: &str| {
            let facts = json!({ "accelerator": accelerator }).to_string();
            StatusResponse { info: [("virtlet".to_owned(), facts)].into(), ..Default::default() }
        };
        assert_eq!(said(&status("qemu (KVM did not work)")), Some("qemu"));
        assert_eq!(said(&status("kvm (configured)")), Some("kvm"));
        assert_eq!(said(&status("not needed yet")), None);
        assert_eq!(said(&StatusResponse::default()), None);
    }
}
