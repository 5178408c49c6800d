//! The tools of the command line, for authors of CNI plugins and configurations: a pod's network without Kubernetes.
//!
//! `main` calls it for `attach`, `detach`, `collect`, `forget`, `list`, `networks`, `status`, `check`, `explain` and `sriov`. Each but `networks` talks to
//! a daemon over its control socket with the client that `controld` uses: to the node's daemon, or with `--conf` to a
//! private one ([`private`]) that knows a single configuration and leaves nothing behind. `--shell` boots a guest
//! ([`guest`]) as libvirt would, with `vmwrapper` in front of QEMU. [`json`] prints for programs, [`text`] for people, [`picture`] draws.
//!
//! | code | sysexits name | when |
//! |---|---|---|
//! | 0 | `EX_OK` | done; `check` found nothing, `status` is ready, plugins of `networks` can be started |
//! | 1 | | `check` has findings, `status` is not ready, the default network of `networks` cannot be used |
//! | 2 | | the command line is wrong |
//! | 65 | `EX_DATAERR` | a value is refused or may mean two pods, a network has no plugin for what is asked of it, or a VF cannot be handed out |
//! | 66 | `EX_NOINPUT` | no such pod, or no such file |
//! | 69 | `EX_UNAVAILABLE` | no daemon; no such network, or none that can be used; a plugin is not installed |
//! | 70 | `EX_SOFTWARE` | anything else that failed, a plugin's error included |
//! | 71 | `EX_OSERR` | the system refuses: disk, descriptors, processes |
//! | 72 | `EX_OSFILE` | a program is missing: QEMU or vmwrapper |
//! | 74 | `EX_IOERR` | the output cannot be written |
//! | 75 | `EX_TEMPFAIL` | a deadline passed, the pod is being worked on, or another one has the VF |
//! | 76 | `EX_PROTOCOL` | the daemon is of another release |
//! | 77 | `EX_NOPERM` | not root |
//! | 78 | `EX_CONFIG` | the configuration or the file of `--conf` cannot be used |
//! | 130, 143 | | ended by Ctrl-C, or by SIGTERM |

pub mod cli;
mod cnitool;
mod console;
mod error;
mod guest;
mod json;
mod leavings;
mod node;
mod picture;
mod ports;
mod private;
mod text;
mod vfs;
mod which;

use std::io::{self, IsTerminal as _, Write};

use common::off_reactor;
use proto::tap::{self, PodDetail, PodNet};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use self::cli::{Attach, Common, Detach, Drawn, Explain, Forget, OfPod, Output, Tool};
use self::cnitool::Variables;
use self::guest::Images;
use self::node::Node;
use self::private::Private;
use crate::cni::Survey;
use crate::config::Config;
use crate::daemon;

pub use self::error::{ToolError, tell};

/// How a tool ended that did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Well,
    /// The answer is that something is not well: exit code 1.
    Unwell,
}

/// Runs a tool; `out` gets its result.
///
/// # Errors
/// See [`ToolError`].
pub fn run(tool: Tool, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    run_by(&Variables::of_environment(), tool, out)
}

fn run_by(variables: &Variables, tool: Tool, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    match tool {
        Tool::Attach(wanted) => attach(*wanted, variables, out),
        Tool::Detach(wanted) => detach(&wanted, out),
        Tool::Collect(common) => {
            let report = Node::of(&common.config()?).collect()?;
            show(&common, out, || json::whole(&report), || text::collected(&report))
        }
        Tool::Forget(Forget { pod, namespace, common }) => {
            let what = pod.map(tap::Forget::Pod).or(namespace.map(tap::Forget::Namespace));
            // clap sees to it that there is one of the two.
            let Some(what) = what else { return Ok(Verdict::Well) };
            let report = Node::of(&common.config()?).forget(what)?;
            show(&common, out, || json::whole(&report), || text::collected(&report))
        }
        Tool::List(common) => {
            let pods = Node::of(&common.config()?).pods()?;
            show(&common, out, || json::list(&pods), || text::list(&pods))
        }
        Tool::Networks(common) => {
            let config = variables.over(common.config()?);
            let survey = Survey::of(&config.cni_conf_dir, &config.cni_plugin_dirs);
            show(&common, out, || json::whole(&survey), || text::networks(&survey))?;
            if let Some(note) = variables.note(survey.is_well()) {
                tell(&format!("tapmanager: {note}\n"));
            }
            Ok(if survey.is_well() { Verdict::Well } else { Verdict::Unwell })
        }
        Tool::Status(common) => {
            let status = Node::of(&common.config()?).status()?;
            show(&common, out, || json::whole(&status), || text::status(&status))?;
            Ok(if status.ready { Verdict::Well } else { Verdict::Unwell })
        }
        Tool::Check(OfPod { common, pod }) => {
            let (pod, report) = pod.ask(&Node::of(&common.config()?), Node::check)?;
            show(&common, out, || json::check(&pod, &report), || text::check(&report))?;
            Ok(if report.findings.is_empty() { Verdict::Well } else { Verdict::Unwell })
        }
        Tool::Explain(wanted) => explain(&wanted, out),
        Tool::Sriov(tool) => vfs::run(tool, out),
    }
}

fn explain(wanted: &Explain, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    let Explain { of: OfPod { common, pod }, picture, ascii } = wanted;
    let (_, detail) = pod.ask(&Node::of(&common.config()?), Node::inspect)?;
    let Some(drawn) = picture else {
        return show(common, out, || json::explained(&detail, &picture::look(&detail)), || text::detail(&detail));
    };
    let picture = picture::of(&detail, &picture::look(&detail));
    let drawing = match drawn {
        Drawn::Text => picture.text(*ascii || !picture::locale_is_utf8()),
        Drawn::Svg => picture.svg(),
    };
    out.write_all(drawing.as_bytes()).map_err(ToolError::Output)?;
    Ok(Verdict::Well)
}

fn detach(wanted: &Detach, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    let node = Node::of(&wanted.common.config()?);
    let pods = match &wanted.pod {
        Some(pod) => vec![pod.clone()],
        None => node.pods()?.into_iter().map(|pod| pod.pod).collect(),
    };
    // One that resists keeps the others from nothing.
    let (mut gone, mut failed) = (Vec::new(), None);
    for pod in pods {
        match node.detach(&pod) {
            Ok(()) => gone.push(pod),
            Err(error) => failed = failed.or(Some(ToolError::Detach { pod, cause: Box::new(error) })),
        }
    }
    show(&wanted.common, out, || json::detached(&gone), || text::detached(&gone))?;
    failed.map_or(Ok(Verdict::Well), Err)
}

fn attach(wanted: Attach, variables: &Variables, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    let config = wanted.common.config()?;
    let config = if wanted.conf.is_some() { variables.over(config) } else { config };
    // Before anything is made: a guest that cannot start should not cost an Attach.
    let images = if wanted.shell { Some(Images::find(&wanted)?) } else { None };
    if wanted.conf.is_none() && images.is_none() {
        let net = Node::of(&config).attach(wanted.request())?;
        return show(&wanted.common, out, || json::attached(&wanted.pod, &net), || text::net(&wanted.pod, &net));
    }
    let runtime = runtime()?;
    let done = runtime.block_on(passing(&wanted, config, images, out));
    // What still reads our input is not waited for.
    runtime.shutdown_background();
    done
}

/// An attachment that ends with this program: with a private daemon, a guest, or both.
async fn passing(
    wanted: &Attach,
    config: Config,
    images: Option<Images>,
    out: &mut dyn Write,
) -> Result<Verdict, ToolError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ToolError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ToolError::Signals)?;
    let mut private = None;
    let config = match &wanted.conf {
        None => config,
        Some(conf) => private.insert(Private::start(config, conf).await?).config().clone(),
    };
    let done = tokio::select! {
        done = visit(wanted, &config, images, out) => done,
        _ = interrupt.recv() => Err(ToolError::Interrupted(SignalKind::interrupt().as_raw_value())),
        _ = terminate.recv() => Err(ToolError::Interrupted(SignalKind::terminate().as_raw_value())),
    };
    // The daemon takes this up after an Attach that goes on.
    let (node, pod) = (Node::of(&config), wanted.pod.clone());
    let gone = off_reactor(move || node.detach(&pod)).await;
    let undone = match private {
        None => gone,
        Some(private) => private.end(gone).await,
    };
    // Why it ended comes first; what is left behind has to be said as well.
    match (done, undone) {
        (Err(first), Err(undo)) => Err(ToolError::LeftBehind { first: Box::new(first), undo: Box::new(undo) }),
        (Ok(_), Err(undo)) => Err(undo),
        (done, Ok(())) => done,
    }
}

async fn visit(
    wanted: &Attach,
    config: &Config,
    images: Option<Images>,
    out: &mut dyn Write,
) -> Result<Verdict, ToolError> {
    let (node, request) = (Node::of(config), wanted.request());
    let (net, detail) = off_reactor(move || -> Result<_, ToolError> {
        let pod = request.pod.clone();
        let net = node.attach(request)?;
        // Not all daemons explain; what the guest gets is known without.
        Ok((net, node.inspect(&pod).ok()))
    })
    .await?;
    let Some(images) = images else {
        return show(
            &wanted.common,
            out,
            || json::tried(&wanted.pod, &net, detail.as_ref()),
            || tried(wanted, &net, detail.as_ref()),
        );
    };
    // The console is what is on stdout then.
    tell(&tried(wanted, &net, detail.as_ref()));
    guest::run(wanted, config, images, net.nics.len(), out).await?;
    Ok(Verdict::Well)
}

fn tried(wanted: &Attach, net: &PodNet, detail: Option<&PodDetail>) -> String {
    detail.map_or_else(|| text::net(&wanted.pod, net), text::detail)
}

fn show(
    common: &Common,
    out: &mut dyn Write,
    json: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> Result<Verdict, ToolError> {
    let people = match common.output() {
        Some(output) => output == Output::Text,
        None => io::stdout().is_terminal(),
    };
    let shown = if people { text() } else { format!("{:#}\n", json()) };
    out.write_all(shown.as_bytes()).map_err(ToolError::Output)?;
    Ok(Verdict::Well)
}

fn runtime() -> Result<Runtime, ToolError> {
    Builder::new_current_thread().enable_all().build().map_err(ToolError::Signals)
}

/// Who QEMU runs as at the daemon of `config`.
fn qemu_user(config: &Config) -> Result<proto::tap::QemuUser, ToolError> {
    daemon::qemu_user(config).ok_or(ToolError::NoQemuUser)
}

#[cfg(test)]
mod tests;
