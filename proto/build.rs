//! Compiles `cri/api.proto` with protox, since Debian 12's protoc rejects its `debug_redact` option, and
//! our own services the same way.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=cri/api.proto");
    println!("cargo:rerun-if-changed=images/admin.proto");
    println!("cargo:rerun-if-changed=machines/machines.proto");
    println!("cargo:rerun-if-changed=orphans/orphans.proto");
    #[cfg(feature = "cri")]
    services::generate()?;
    Ok(())
}

#[cfg(feature = "cri")]
mod services {
    pub(crate) fn generate() -> Result<(), Box<dyn std::error::Error>> {
        let cri = protox::compile(["api.proto"], ["cri"])?;
        tonic_prost_build::configure()
            .generate_default_stubs(true)
            // prost would print the registry password of a pull; `proto::cri` has a Debug that does not.
            .skip_debug(["runtime.v1.AuthConfig"])
            .compile_fds(cri)?;
        let images = protox::compile(["admin.proto"], ["images"])?;
        // As above, in `proto::images`.
        tonic_prost_build::configure().skip_debug(["virtlet.images.v1.Auth"]).compile_fds(images)?;
        let machines = protox::compile(["machines.proto"], ["machines"])?;
        tonic_prost_build::configure().compile_fds(machines)?;
        let orphans = protox::compile(["orphans.proto"], ["orphans"])?;
        tonic_prost_build::configure().compile_fds(orphans)?;
        Ok(())
    }
}
