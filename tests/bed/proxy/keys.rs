//! Whose a pod is.

use anyhow::{Context as _, Result, ensure};
use proto::cri::{PodSandboxConfig, PodSandboxMetadata};
use tests::case::{Bed, Case};
use tonic::Code;

use super::{Both, DEADLINE, TARGET};

pub(super) const CASES: &[Case] = &[Case { name: "proxy::keys_say_whose_a_sandbox_is", deadline: DEADLINE, run: keys }];

/// The matrix of handler and annotation, against the runtimes themselves.
fn keys(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    for (number, (handler, target, wanted)) in [
        ("", None, Ok(false)),
        ("runc", None, Ok(false)),
        ("virtlet", None, Ok(true)),
        ("", Some("virtlet.cloud"), Ok(true)),
        ("virtlet", Some("virtlet.cloud"), Ok(true)),
        ("runc", Some("virtlet.cloud"), Err((Code::InvalidArgument, "leave one of them out"))),
        ("", Some("docker"), Err((Code::InvalidArgument, "`virtlet.cloud`"))),
        // containerd's own words.
        ("ghost", None, Err((Code::Unknown, "no runtime for \"ghost\" is configured"))),
    ]
    .into_iter()
    .enumerate()
    {
        let metadata = PodSandboxMetadata {
            name: format!("p{number}"),
            uid: format!("u{number}"),
            namespace: "default".into(),
            attempt: 0,
        };
        let annotations = target.map(|target| (TARGET.to_owned(), target.to_owned())).into_iter().collect();
        let log_directory = bed.dir.join(format!("logs{number}")).display().to_string();
        let config =
            PodSandboxConfig { metadata: Some(metadata), annotations, log_directory, ..PodSandboxConfig::default() };
        match (both.node.cri.run_sandbox_for(&config, handler), wanted) {
            (Ok(id), Ok(ours)) => {
                ensure!(id.starts_with("vm") == ours, "{handler} {target:?}: {id}");
                both.node.cri.sandbox(&id).with_context(|| format!("status of {id}"))?;
                ensure!(both.ids()?.contains_key(&id), "{id} is not listed");
                both.node.cri.remove_sandbox(&id)?;
                ensure!(!both.ids()?.contains_key(&id), "{id} is listed still");
            }
            (Err(status), Err((code, text))) => {
                ensure!(status.code() == code && status.message().contains(text), "{handler} {target:?}: {status}");
            }
            (answer, wanted) => anyhow::bail!("{handler} {target:?}: {answer:?}, not {wanted:?}"),
        }
    }
    both.containerd.stop()
}
