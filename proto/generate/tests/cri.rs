//! Pins the CRI wire: every call, message, field and number of `cri/api.proto`.
//!
//! `tests/peers/cri-api` prints kubelet's own in the same form, and a case of the bed (`tests/bed/cri/wire.rs`) compares the two.

use std::fmt::{self, Write as _};

use protox::prost_reflect::prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

/// The whole schema in a form where a changed number, type or name is one changed line.
#[test]
fn the_wire_is_pinned() {
    let set =
        protox::compile(["api.proto"], [concat!(env!("CARGO_MANIFEST_DIR"), "/../cri")]).expect("api.proto compiles");
    let mut text = String::new();
    for file in &set.file {
        assert_eq!(file.service.iter().map(|service| service.method.len()).sum::<usize>(), 43);
        calls(&mut text, file).expect("a String takes it");
        enums(&mut text, "", &file.enum_type).expect("a String takes it");
        messages(&mut text, "", &file.message_type).expect("a String takes it");
    }
    insta::assert_snapshot!(text);
}

fn calls(text: &mut String, file: &FileDescriptorProto) -> fmt::Result {
    writeln!(text, "package {} {}", file.package(), file.syntax())?;
    let stream = |is: bool| if is { "stream " } else { "" };
    for service in &file.service {
        for call in &service.method {
            let (input, output) = (call.input_type(), call.output_type());
            let (asks, answers) = (stream(call.client_streaming()), stream(call.server_streaming()));
            writeln!(text, "{}.{}({asks}{input}) -> {answers}{output}", service.name(), call.name())?;
        }
    }
    Ok(())
}

fn enums(text: &mut String, within: &str, all: &[EnumDescriptorProto]) -> fmt::Result {
    for kinds in all {
        for value in &kinds.value {
            writeln!(text, "{within}{}.{} = {}", kinds.name(), value.name(), value.number())?;
        }
    }
    Ok(())
}

fn messages(text: &mut String, within: &str, all: &[DescriptorProto]) -> fmt::Result {
    for message in all {
        let name = format!("{within}{}", message.name());
        writeln!(text, "message {name}")?;
        for field in &message.field {
            let label = field.label().as_str_name().trim_start_matches("LABEL_").to_lowercase();
            let kind = field.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase();
            let mut words = vec![&*label, &kind];
            words.extend(field.type_name.as_deref());
            let of = field.oneof_index.and_then(|at| message.oneof_decl.get(usize::try_from(at).ok()?));
            words.extend(of.into_iter().flat_map(|of| ["of", of.name()]));
            let (words, json) = (words.join(" "), field.json_name());
            writeln!(text, "{name}.{} = {} {words}, JSON {json}", field.name(), field.number())?;
        }
        for reserved in &message.reserved_range {
            writeln!(text, "{name} reserves {} to {}", reserved.start(), reserved.end() - 1)?;
        }
        enums(text, &format!("{name}."), &message.enum_type)?;
        messages(text, &format!("{name}."), &message.nested_type)?;
    }
    Ok(())
}
