//! What is compiled is what `make proto` made of the .proto files, and of nothing else.

#![cfg(feature = "cri")]

use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_code_is_of_the_proto_files() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
    let root = Path::new(&root);
    let mut sources = Vec::new();
    for file in fs::read_dir(root.join("generated")).expect("a directory") {
        let path = file.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("text");
        let (of, rest) = text.split_once('\n').expect("two lines");
        let (by, code) = rest.split_once('\n').expect("two lines");
        let (source, made_of) = of.strip_prefix("// Of ").and_then(|of| of.split_once(", ")).expect("its source");
        let made = by.strip_prefix("// By `make proto`, ").expect("its sum");
        let name = path.display();
        assert_eq!(sum(&fs::read(root.join(source)).expect("a source")), made_of, "{source} has changed: `make proto`");
        assert_eq!(sum(code.as_bytes()), made, "{name} was edited: `make proto`");
        sources.push(source.to_owned());
    }
    sources.sort();
    let all =
        ["cri/api.proto", "images/admin.proto", "machines/machines.proto", "orphans/orphans.proto", "otlp/trace.proto"];
    assert_eq!(sources, all);
}
