//! Pins the CRI wire: every call, message, field and number of `cri/api.proto`.

use std::fmt::Write as _;

/// The whole schema in a form where a changed number, type or name is one changed line.
#[test]
fn the_wire_is_pinned() {
    let set =
        protox::compile(["api.proto"], [concat!(env!("CARGO_MANIFEST_DIR"), "/../cri")]).expect("api.proto compiles");
    let mut text = String::new();
    let mut calls = 0;
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                calls += 1;
                let stream = if method.server_streaming() { "stream " } else { "" };
                let (input, output) = (method.input_type(), method.output_type());
                let _ = writeln!(text, "{}.{}({input}) -> {stream}{output}", service.name(), method.name());
            }
        }
        for message in &file.message_type {
            for field in &message.field {
                let kind = format!("{:?}/{:?} {}", field.label(), field.r#type(), field.type_name());
                let _ = writeln!(text, "{}.{} = {} {}", message.name(), field.name(), field.number(), kind.trim_end());
            }
        }
        for kinds in &file.enum_type {
            for value in &kinds.value {
                let _ = writeln!(text, "{}.{} = {}", kinds.name(), value.name(), value.number());
            }
        }
    }
    assert_eq!(calls, 43);
    insta::assert_snapshot!(text);
}
