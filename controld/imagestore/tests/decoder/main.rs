//! Images decompressed in a process apart. This program is its own decoder: what the store starts is this file again,
//! so it has a `main` of its own in place of the test harness's.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a test harness")]

mod cases;
mod escapes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["decompress", kind] => vmimage::decode::run_apart(kind),
        ["escape", way] => escapes::attempt(way),
        // What `cargo test` passes on is a filter, or of its own harness.
        _ => run(words.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str)),
    }
}

fn run(filter: &str) -> ExitCode {
    let all = cases::ALL.iter().chain(escapes::ALL);
    for (name, case) in all.filter(|(name, _)| name.contains(filter)) {
        case();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
