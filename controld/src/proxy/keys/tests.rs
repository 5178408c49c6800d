use std::collections::HashMap;

use prost::Message as _;
use proto::cri::*;

use super::*;

fn keys() -> Keys {
    let mut config = Config::default();
    config.proxy.target_runtimes.push("vms".into());
    Keys::new(&config)
}

fn annotated(target: Option<&str>) -> HashMap<String, String> {
    target.map(|target| (TARGET.to_owned(), target.to_owned())).into_iter().collect()
}

fn sandbox(handler: &str, target: Option<&str>) -> Result<Side, Refusal> {
    let config = PodSandboxConfig { annotations: annotated(target), ..Default::default() };
    let (config, runtime_handler) = (Some(config), handler.to_owned());
    let run = RunPodSandboxRequest { config: config.clone(), runtime_handler: runtime_handler.clone() }.encode_to_vec();
    let restore = RestorePodRequest { config, runtime_handler, checkpoint_path: "/x".into(), ..Default::default() };
    let restore = restore.encode_to_vec();
    let run = keys().sandbox(&SandboxKeys::read(&run, 1, 2).expect("read"));
    assert_eq!(run, keys().sandbox(&SandboxKeys::read(&restore, 2, 3).expect("read")));
    run
}

fn spec(name: &str, handler: &str, target: Option<&str>) -> ImageSpec {
    let (image, runtime_handler) = (name.to_owned(), handler.to_owned());
    ImageSpec { image, runtime_handler, annotations: annotated(target), ..Default::default() }
}

fn image(spec: ImageSpec) -> Option<Side> {
    let request = ImageStatusRequest { image: Some(spec), verbose: true }.encode_to_vec();
    keys().image(&ImageKeys::read(&request, &[1]).expect("read"))
}

/// The matrix of the specification's section 2.
#[test]
fn a_sandbox_is_ours_by_handler_or_by_annotation() {
    for (handler, target, wanted) in [
        ("", None, Side::Default),
        ("", Some(""), Side::Default),
        ("runc", None, Side::Default),
        ("ghost", None, Side::Default),
        ("Virtlet", None, Side::Default),
        ("virtlet", None, Side::Ours),
        ("virtlet", Some("virtlet.cloud"), Side::Ours),
        ("", Some("virtlet.cloud"), Side::Ours),
        ("", Some("vms"), Side::Ours),
    ] {
        assert_eq!(sandbox(handler, target), Ok(wanted), "{handler} {target:?}");
    }
}

#[test]
fn keys_that_lead_nowhere_are_refused_with_what_would_do() {
    for handler in ["", "virtlet", "runc"] {
        let error = sandbox(handler, Some("docker\n")).expect_err("unknown").to_string();
        assert!(error.contains("is `docker?`") && error.contains("`virtlet.cloud` or `vms`"), "{error}");
    }
    let none = Keys { targets: Vec::new(), ..keys() };
    let error = none.sandbox(&SandboxKeys { handler: "", target: "virtlet.cloud" }).expect_err("unknown").to_string();
    assert!(error.contains("`proxy.target_runtimes` names no value"), "{error}");
    let error = sandbox("runc", Some("virtlet.cloud")).expect_err("both");
    assert_eq!(error, Refusal::Disagree { handler: "runc".into(), target: "virtlet.cloud".into() });
    let status = Status::from(error);
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("`runc`") && status.message().contains("`virtlet.cloud`"), "{status}");
}

#[test]
fn an_image_goes_by_the_first_key_that_it_has() {
    let (ours, default) = (Some(Side::Ours), Some(Side::Default));
    assert_eq!(image(spec("nginx", "", None)), None);
    // Of criproxy's days. Only a sandbox is refused for it.
    assert_eq!(image(spec("nginx", "", Some("docker"))), None);
    assert_eq!(image(spec("nginx", "virtlet", Some("docker"))), ours);
    assert_eq!(image(spec("virtlet.cloud/x", "", Some("docker"))), ours);
    assert_eq!(image(spec("", "", None)), None);
    assert_eq!(image(spec("sha256:12", "", None)), None);
    assert_eq!(image(spec("nginx", "virtlet", None)), ours);
    assert_eq!(image(spec("virtlet.cloud/x", "runc", None)), default, "the handler is before the name");
    assert_eq!(image(spec("nginx", "", Some("virtlet.cloud"))), ours);
    assert_eq!(image(spec("virtlet.cloud/x", "", None)), ours);
    assert_eq!(image(spec("virtlet.cloud", "", None)), None, "a prefix ends with a slash");
    assert_eq!(image(spec("docker.io/virtlet.cloud/x", "", None)), None);
    let by_annotation =
        ImageSpec { annotations: [(IMAGE_HANDLER.to_owned(), "virtlet".to_owned())].into(), ..spec("x", "", None) };
    assert_eq!(image(by_annotation.clone()), ours, "as our image service takes it");
    assert_eq!(image(ImageSpec { runtime_handler: "runc".into(), ..by_annotation }), default);
}

#[test]
fn a_pull_may_be_told_by_its_pod() {
    let pod = PodSandboxConfig { annotations: annotated(Some("virtlet.cloud")), ..Default::default() };
    let request = PullImageRequest { image: Some(spec("x", "", None)), sandbox_config: Some(pod), auth: None };
    let request = request.encode_to_vec();
    assert_eq!(keys().image(&ImageKeys::of_pull(&request).expect("read")), Some(Side::Ours));
}
