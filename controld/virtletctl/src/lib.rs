//! `virtletctl`: pods on this node from a command line, spoken to controld in CRI like by any other client;
//! and its images and what is on no record, by services of our own. [`doctor`] looks at the node itself.
//!
//! [`cli`] is the command line, [`run`] does what it says through a [`client`]. It knows nothing of the daemon but its
//! socket; what it must remember of a pod (where its logs are) it keeps in the pod's labels. Text that comes from the
//! server is printed with its control characters escaped (`text`), except for logs and consoles, which are for the
//! terminal as they are.
//!
//! The commands of [`vms`] are for those who have a cluster and no node: they speak to its API ([`cluster`]) and to no daemon.

mod ancestor;
mod browser;
mod checkpoint;
pub mod cli;
pub mod client;
mod cluster;
pub mod complete;
pub mod condition;
mod console;
mod cp;
mod create;
mod describe;
mod doctor;
mod document;
mod each;
pub mod elsewhere;
pub mod error;
mod events;
mod exec;
mod explain;
mod filter;
mod find;
mod forward;
pub mod front;
mod image;
mod import;
mod inspect;
pub mod interrupt;
mod jsonpath;
mod kind;
pub mod kubeconfig;
mod logdir;
mod login;
mod logs;
mod made;
mod name;
mod orphans;
mod pause;
mod phase;
mod place;
mod ports;
mod proxy;
mod ps;
mod publish;
mod pull;
mod quantity;
mod ready;
mod rm;
pub mod selector;
mod share;
mod source;
mod ssh;
mod start;
mod stats;
mod stop;
mod tell;
mod template;
mod terminal;
mod text;
pub mod thing;
mod timeline;
mod until;
mod variable;
mod version;
mod vm;
mod vms;
mod vnc;
mod wait;

use std::future::Future;
use std::io::Write;
use std::pin::Pin;

use clap::CommandFactory as _;
use common::manual::{self, Section};

use self::cli::{Cli, Command, ImageCommand, ProxyCommand, VmCommand};
use self::client::Client;
use self::error::CtlError;
use self::interrupt::Interrupt;

/// Does what the command line says; `out` takes its result. `interrupt` fires when the user wants no more of it: what
/// is half made is undone then.
///
/// # Errors
/// One for each thing that failed, at least one.
pub async fn run(cli: Cli, out: &mut (dyn Write + Send), interrupt: Interrupt) -> Result<(), Vec<CtlError>> {
    if let Command::Image { command: ImageCommand::Inspect(wanted) } = &cli.command
        && wanted.name().is_none()
    {
        // Asks no daemon.
        return inspect::run(wanted, out).map_err(one);
    }
    match &cli.command {
        Command::Completion(wanted) => {
            return complete::script(wanted.shell)
                .and_then(|script| out.write_all(&script))
                .map_err(|cause| one(cause.into()));
        }
        // Boxed, like those below.
        Command::Doctor(wanted) => return Box::pin(doctor::run(wanted, &cli.socket, out)).await.map_err(one),
        Command::Proxy { command: Some(ProxyCommand::Enable(wanted)) } => {
            return Box::pin(proxy::enable(wanted, out)).await.map_err(one);
        }
        Command::Proxy { command: Some(ProxyCommand::Disable(wanted)) } => {
            return Box::pin(proxy::disable(wanted, &cli.socket, out)).await.map_err(one);
        }
        Command::Vm { command: VmCommand::InCluster(verb) } => {
            return Box::pin(vms::run(verb, cli.version, out, &interrupt)).await;
        }
        Command::Vm { command } => return vm::run(command, out),
        Command::Validate(wanted) => return Err(one(Box::pin(explain::validate(wanted, &cli.socket)).await)),
        Command::Manual(wanted) => {
            let script = |shell| complete::script(shell).map(Some);
            let written = manual::write_with(Cli::command(), Section::Commands, &wanted.dir, script);
            return written.map_err(|cause| one(cause.into()));
        }
        Command::Version(wanted) => {
            let client = if wanted.client { None } else { Some(Client::connect(&cli.socket).await) };
            return version::run(client, wanted, cli.version, out).await.map_err(one);
        }
        _ => {}
    }
    let client = &Client::connect(&cli.socket).await.map_err(|cause| one(or_file(cause, &cli.command)))?;
    let interrupt = &interrupt;
    // Boxed, since the largest of them needs as much of a stack as all of them; and made elsewhere, since each has its place here
    // otherwise before it is boxed.
    let done: Work<'_> = match cli.command {
        Command::Run(wanted) => {
            boxed(move || async move { create::run(client, (wanted, None), out, interrupt).await.map_err(one) })
        }
        Command::Restore(cli::Restore { checkpoint, run }) => {
            boxed(
                move || async move { create::run(client, (run, Some(&checkpoint)), out, interrupt).await.map_err(one) },
            )
        }
        Command::Ps(wanted) => boxed(move || async move { ps::run(client, &wanted, out).await }),
        Command::Get(mut wanted) => {
            wanted.all = true;
            boxed(move || async move { ps::run(client, &wanted, out).await })
        }
        Command::Logs(wanted) => boxed(move || async move { logs::run(client, &wanted, out).await.map_err(one) }),
        Command::Console(wanted) => boxed(move || async move { console::run(client, &wanted).await.map_err(one) }),
        Command::Exec(wanted) => boxed(move || async move { exec::run(client, wanted, out).await.map_err(one) }),
        Command::Shell(wanted) => boxed(move || async move { exec::shell(client, wanted, out).await.map_err(one) }),
        Command::Cp(wanted) => boxed(move || async move { cp::run(client, wanted).await.map_err(one) }),
        Command::Ssh(wanted) => boxed(move || async move { ssh::run(client, &wanted).await.map_err(one) }),
        Command::PortForward(wanted) => {
            boxed(move || async move { forward::run(client, &wanted, out, interrupt).await.map_err(one) })
        }
        Command::Vnc(wanted) => {
            boxed(move || async move { vnc::run(client, &wanted, out, interrupt).await.map_err(one) })
        }
        Command::Explain(wanted) => boxed(move || async move { explain::run(client, &wanted, out).await.map_err(one) }),
        Command::Timeline(wanted) => {
            boxed(move || async move { timeline::run(client, &wanted, out).await.map_err(one) })
        }
        Command::Inspect(wanted) => boxed(move || async move { describe::run(client, &wanted, out).await }),
        Command::Describe(wanted) => boxed(move || describe::tell(client, wanted, out)),
        Command::Wait(wanted) => boxed(move || async move { until::run(client, &wanted, out).await }),
        Command::Stats(wanted) => boxed(move || async move { stats::stats(client, &wanted, out).await }),
        Command::Top(wanted) => boxed(move || async move { stats::top(client, &wanted, out).await }),
        Command::Events(wanted) => boxed(move || async move { events::run(client, &wanted, out).await.map_err(one) }),
        Command::Stop(wanted) => boxed(move || stop::run(client, wanted.pods, wanted.timeout, out)),
        Command::Kill(wanted) => boxed(move || stop::kill(client, wanted.pods, out)),
        Command::Start(wanted) => boxed(move || start::run(client, wanted.pods, out)),
        Command::Restart(wanted) => boxed(move || start::again(client, wanted.pods, wanted.timeout, out)),
        Command::Reset(wanted) => boxed(move || start::again(client, wanted.pods, 0, out)),
        Command::Pause(wanted) => boxed(move || pause::run(client, wanted.pods, out)),
        Command::Resume(wanted) => boxed(move || pause::end(client, wanted.pods, out)),
        Command::Checkpoint(wanted) => {
            boxed(move || async move { checkpoint::run(client, &wanted, out).await.map_err(one) })
        }
        Command::Rm(wanted) => boxed(move || rm::run(client, wanted, out)),
        Command::Delete(wanted) => boxed(move || rm::delete(client, wanted, out)),
        Command::Orphans(wanted) => {
            boxed(move || async move { orphans::list(client, &wanted, out).await.map_err(one) })
        }
        Command::Forget(wanted) => boxed(move || orphans::forget(client, wanted, out)),
        Command::Proxy { command } => match command.unwrap_or_default() {
            ProxyCommand::Status(wanted) => {
                boxed(move || async move { proxy::status(client, &wanted, out).await.map_err(one) })
            }
            // Done above.
            ProxyCommand::Enable(_) | ProxyCommand::Disable(_) => Box::pin(std::future::ready(Ok(()))),
        },
        Command::Images(wanted) => boxed(move || image::run(client, ImageCommand::Ls(wanted), out, interrupt)),
        Command::Pull(wanted) => boxed(move || image::run(client, ImageCommand::Pull(wanted), out, interrupt)),
        Command::Rmi(wanted) => boxed(move || image::run(client, ImageCommand::Rm(wanted), out, interrupt)),
        // Done above.
        Command::Completion(_)
        | Command::Doctor(_)
        | Command::Manual(_)
        | Command::Validate(_)
        | Command::Version(_)
        | Command::Vm { .. } => Box::pin(std::future::ready(Ok(()))),
        Command::Image { command } => boxed(move || image::run(client, command, out, interrupt)),
    };
    done.await
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), Vec<CtlError>>> + 'a>>;

#[inline(never)]
fn boxed<'a, F: Future<Output = Result<(), Vec<CtlError>>> + 'a>(make: impl FnOnce() -> F) -> Work<'a> {
    Box::pin(make())
}

/// Why nobody can be asked, and that there is no file either where one may have been meant.
fn or_file(cause: CtlError, command: &Command) -> CtlError {
    match command {
        Command::Image { command: ImageCommand::Inspect(wanted) } if !wanted.path.exists() => {
            CtlError::NoFile { path: wanted.path.clone(), cause: Box::new(cause) }
        }
        _ => cause,
    }
}

fn one(error: CtlError) -> Vec<CtlError> {
    vec![error]
}

#[cfg(test)]
mod tests;
