//! Compiles `cri/api.proto` with protox, since Debian 12's protoc rejects its `debug_redact` option.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=cri/api.proto");
    #[cfg(feature = "cri")]
    cri::generate()?;
    Ok(())
}

#[cfg(feature = "cri")]
mod cri {
    pub(crate) fn generate() -> Result<(), Box<dyn std::error::Error>> {
        let descriptors = protox::compile(["api.proto"], ["cri"])?;
        tonic_prost_build::configure()
            .generate_default_stubs(true)
            // prost would print the registry password of a pull; `proto::cri` has a Debug that does not.
            .skip_debug(["runtime.v1.AuthConfig"])
            .compile_fds(descriptors)?;
        Ok(())
    }
}
