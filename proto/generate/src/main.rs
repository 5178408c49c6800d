//! Makes `proto/generated/` of the .proto files, for `make proto`. With protox, since Debian 12's protoc rejects the `debug_redact`
//! option of `cri/api.proto`.
//!
//! Each file says in its first lines which bytes it was made of and which it has: a test of `proto` refuses both a .proto file that has
//! changed since and a file that was edited by hand.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use sha2::{Digest as _, Sha256};
use tonic_prost_build::Builder;

/// A .proto file, the package that it declares, and what is asked of its code.
type Source = (&'static str, &'static str, fn(Builder) -> Builder);

const SOURCES: [Source; 5] = [
    // prost would print the registry password of a pull; `proto::cri` has a Debug that does not.
    ("cri/api.proto", "runtime.v1", |it| it.generate_default_stubs(true).skip_debug(["runtime.v1.AuthConfig"])),
    // As above, in `proto::images`.
    ("images/admin.proto", "virtlet.images.v1", |it| it.skip_debug(["virtlet.images.v1.Auth"])),
    ("machines/machines.proto", "virtlet.machines.v1", |it| it),
    ("otlp/trace.proto", "opentelemetry.proto.collector.trace.v1", |it| it),
    ("orphans/orphans.proto", "virtlet.orphans.v1", |it| it),
];

fn main() -> Result<(), Box<dyn Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = env::temp_dir().join(format!("virtlet-proto-{}", std::process::id()));
    fs::create_dir(&out)?;
    for (source, package, wanted) in SOURCES {
        let source_path = proto.join(source);
        let (name, dir) = (source_path.file_name().ok_or("no file")?, source_path.parent().ok_or("no directory")?);
        let compiled = protox::compile([name], [dir])?;
        wanted(tonic_prost_build::configure().out_dir(&out)).compile_fds(compiled)?;
        let code = fs::read_to_string(out.join(format!("{package}.rs")))?;
        let head = format!(
            "// Of {source}, {}\n// By `make proto`, {}\n",
            sum(&fs::read(&source_path)?),
            sum(code.as_bytes())
        );
        fs::write(proto.join("generated").join(format!("{package}.rs")), head + &code)?;
    }
    Ok(fs::remove_dir_all(out)?)
}

fn sum(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
