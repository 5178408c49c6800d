//! `virtletctl`: pods on this node from a command line, spoken to controld in CRI like by any other client;
//! and its images and what is on no record, by services of our own.
//!
//! [`cli`] is the command line, [`run`] does what it says through a [`client`]. It knows nothing of the daemon but its
//! socket; what it must remember of a pod (where its logs are) it keeps in the pod's labels. Text that comes from the
//! server is printed with its control characters escaped (`text`), except for logs and consoles, which are for the
//! terminal as they are.

pub mod cli;
pub mod client;
mod console;
mod create;
pub mod error;
mod find;
mod image;
mod inspect;
mod logdir;
mod logs;
mod name;
mod orphans;
mod ps;
mod pull;
mod quantity;
mod rm;
mod text;
pub mod thing;

use std::io::Write;

use tokio_util::sync::CancellationToken;

use self::cli::{Cli, Command, ImageCommand};
use self::client::Client;
use self::error::CtlError;

/// Does what the command line says; `out` takes its result. `interrupt` fires when the user wants no more of it: what
/// is half made is undone then.
///
/// # Errors
/// One for each thing that failed, at least one.
pub async fn run(cli: Cli, out: &mut (dyn Write + Send), interrupt: CancellationToken) -> Result<(), Vec<CtlError>> {
    if let Command::Image { command: ImageCommand::Inspect(wanted) } = &cli.command
        && wanted.name().is_none()
    {
        // Asks no daemon.
        return inspect::run(wanted, out).map_err(one);
    }
    let client = Client::connect(&cli.socket).await.map_err(|cause| one(or_file(cause, &cli.command)))?;
    match cli.command {
        Command::Run(wanted) => create::run(&client, wanted, out, &interrupt).await.map_err(one),
        Command::Ps(wanted) => ps::run(&client, &wanted, out).await.map_err(one),
        Command::Logs(wanted) => logs::run(&client, &wanted, out).await.map_err(one),
        Command::Console(wanted) => console::run(&client, &wanted).await.map_err(one),
        Command::Rm(wanted) => rm::run(&client, wanted, out).await,
        Command::Orphans(wanted) => orphans::list(&client, &wanted, out).await.map_err(one),
        Command::Forget(wanted) => orphans::forget(&client, wanted, out).await,
        Command::Image { command } => image::run(&client, command, out, &interrupt).await,
    }
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
