//! Lines of the manuals of docker, kubectl, virtctl, multipass and crictl: each is taken, or one line says what does instead.
//!
//! `typed.txt` has a line and, behind a tab, `ok` or a part of what is said.

use std::ffi::OsString;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use tokio::time::timeout;

use super::fake::Fake;
use super::verbs::two;
use crate::cli::Cli;
use crate::elsewhere;
use crate::error::{CtlError, Line};
use crate::front::in_order;
use crate::interrupt::Interrupt;
use crate::run;

const LINES: &str = include_str!("typed.txt");
/// For what is refused once controld has told what there is.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_others_manuals_have_is_taken_or_told() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    let mut wrong = Vec::new();
    for line in LINES.lines() {
        let (typed, wanted) = line.split_once('\t').expect("a tab");
        let words: Vec<OsString> = in_order(Cli::command, split(typed).into_iter().map(OsString::from).collect());
        let told = match Cli::try_parse_from(&words) {
            Ok(_) if wanted == "ok" => continue,
            Ok(cli) => {
                let cli = Cli { socket: socket.clone(), ..cli };
                let done = timeout(SOON, run(cli, &mut Vec::new(), Interrupt::default())).await;
                let errors = done.expect(typed).expect_err(typed);
                assert!(errors.iter().all(|error| matches!(error.exit_code(), 1 | 2)), "{typed}");
                errors.iter().map(|error| Line(error).to_string()).collect::<Vec<_>>().join("\n")
            }
            Err(error) => {
                let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                let told = elsewhere::line(&error, &words).unwrap_or_else(|| panic!("{typed}: {error}"));
                let error = CtlError::Usage(told);
                assert_eq!(error.exit_code(), 2, "{typed}");
                Line(&error).to_string()
            }
        };
        if wanted == "ok" || !told.contains(wanted) || told.lines().count() != 1 {
            wrong.push(format!("{typed}\t{wanted}\t{told}"));
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
    let changes: Vec<String> = fake.calls().into_iter().filter(|call| !call.starts_with("PodSandboxStatus")).collect();
    assert_eq!(changes, [""; 0]);
    assert!(LINES.lines().count() > 400);
}

/// Words as a shell has them, as far as these lines go: with quotes of both kinds.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, ' ') => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, '"' | '\'') => (quote, begun) = (Some(c), true),
            (Some(open), _) if open == c => quote = None,
            _ => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}
