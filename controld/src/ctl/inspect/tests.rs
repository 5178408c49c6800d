use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use clap::Parser as _;

use super::super::cli::{Cli, Command, ImageCommand};
use super::super::error::Line;
use super::*;

/// What is printed, or the exit code and the line of the error; the directory is taken out.
fn inspect(dir: &Path, arguments: &[&str]) -> Result<String, (u8, String)> {
    let arguments = ["virtletctl", "image", "inspect"].iter().chain(arguments);
    let Command::Image { command: ImageCommand::Inspect(mut wanted) } =
        Cli::try_parse_from(arguments).expect("arguments").command
    else {
        panic!("not this command")
    };
    wanted.path = dir.join(wanted.path);
    let mut out = Vec::new();
    match run(&wanted, &mut out) {
        Ok(()) => Ok(String::from_utf8(out).expect("UTF-8")),
        Err(error) => {
            assert!(out.is_empty(), "nothing is printed of what is refused");
            Err((error.exit_code(), Line(&error).to_string().replace(dir.to_str().expect("UTF-8"), "DIR")))
        }
    }
}

/// A sound image of 1 GiB without data, with these fields changed.
fn image(path: &Path, fields: &[(u64, &[u8])]) {
    let file = File::create(path).expect("made");
    file.set_len(4 << 16).expect("long");
    let sound: [(u64, &[u8]); 9] = [
        (0, b"QFI\xfb\0\0\0\x03"),
        (20, &16_u32.to_be_bytes()),
        (24, &(1_u64 << 30).to_be_bytes()),
        (36, &2_u32.to_be_bytes()),
        (40, &(3_u64 << 16).to_be_bytes()),
        (48, &(1_u64 << 16).to_be_bytes()),
        (56, &1_u32.to_be_bytes()),
        (96, &4_u32.to_be_bytes()),
        (100, &112_u32.to_be_bytes()),
    ];
    for (at, bytes) in sound.iter().chain(fields) {
        file.write_all_at(bytes, *at).expect("written");
    }
}

#[test]
fn what_would_be_taken_is_described() {
    let dir = tempfile::tempdir().expect("directory");
    image(&dir.path().join("a.qcow2"), &[(80, &1_u64.to_be_bytes())]);
    insta::assert_snapshot!(inspect(dir.path(), &["a.qcow2"]).expect("taken"), @"");
    insta::assert_snapshot!(inspect(dir.path(), &["--json", "a.qcow2"]).expect("taken"), @"");
    let parent = format!("sha256:{}", "ab".repeat(32));
    let format = [&0xe279_2aca_u32.to_be_bytes()[..], &5_u32.to_be_bytes(), b"qcow2"].concat();
    let layered: [(u64, &[u8]); 4] =
        [(8, &512_u64.to_be_bytes()), (16, &71_u32.to_be_bytes()), (112, &format), (512, parent.as_bytes())];
    image(&dir.path().join("child"), &layered);
    insta::assert_snapshot!(inspect(dir.path(), &["child", "--format=qcow2"]).expect("taken"), @"");
    std::fs::write(dir.path().join("disk"), [7; 1024]).expect("written");
    insta::assert_snapshot!(inspect(dir.path(), &["--format", "raw", "disk"]).expect("taken"), @"");
    insta::assert_snapshot!(inspect(dir.path(), &["--format", "raw", "disk", "--json"]).expect("taken"), @"");
}

#[test]
fn what_would_not_be_taken_is_told_with_the_reason() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    let backed: [(u64, &[u8]); 3] =
        [(8, &512_u64.to_be_bytes()), (16, &11_u32.to_be_bytes()), (512, b"/etc/pa\x1bswd")];
    image(&path("backed"), &backed);
    image(&path("json:{\"driver\":\"null-co\"}"), &[(72, &4_u64.to_be_bytes())]);
    image(&path("nbd:localhost"), &[(24, &(1_u64 << 62).to_be_bytes())]);
    std::fs::write(path("disk"), [7; 1024]).expect("written");
    std::fs::write(path("empty"), []).expect("written");
    std::fs::write(path("page"), b"<html>").expect("written");
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let lines: Vec<String> = [
        &["backed"][..],
        &["--format", "raw", "backed"],
        &["json:{\"driver\":\"null-co\"}"],
        &["nbd:localhost", "--json"],
        &["disk"],
        &["empty"],
        &["page", "--format", "raw"],
        &["fifo"],
        &["."],
        &["nothing"],
        &["json:{\"driver\":\"file\",\"filename\":\"disk\"}"],
    ]
    .iter()
    .map(|arguments| {
        let (code, line) = inspect(dir.path(), arguments).expect_err("refused");
        format!("{code} {line}")
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @"");
}
