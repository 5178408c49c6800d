//! What a fuzzer gives to the rules: the bytes are a configuration, and names are translated by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::Chain;
use url::Url;
use vmimage::name::ImageName;

use super::problem::Origin;
use super::table::{Pattern, RuleTable};
use super::{Mappings, Protocol, RuleSource, TranslateConfig, Translator, Wanted, file};
use crate::sources::provider::Platform;

const NAMES: [&str; 6] =
    ["cirros", "prod/ubuntu/24.04", "centos/7-01", "example.com:1234/foo/bar", "a/b__c", "[::1]/x"];

/// Reads any bytes as a configuration and translates names by it.
///
/// # Panics
/// When that finds a fault.
pub fn exercise(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok((config, _)) = file::parse(Origin::mapping("fuzz"), text) else { return };
    // A fixed name of its own is found by it, unless an earlier rule has it.
    let fixed = config.fixed.iter().filter_map(|rule| match &rule.pattern {
        Pattern::Name(name) if config.prefix.is_empty() => Some(name.clone()),
        Pattern::Name(name) => Some(format!("{}/{name}", config.prefix)),
        Pattern::Regexp(_) => None,
    });
    let own: BTreeSet<String> = fixed.collect();
    let for_all = config.handlers.is_none();
    let mappings = Mappings::default();
    for problem in mappings.put("fuzz", text) {
        drop(Chain(&problem).to_string());
    }
    let platforms =
        [Platform::linux("amd64"), Platform::linux("arm64"), Platform { os: "windows".into(), ..Platform::default() }];
    let translator = Translator::new(
        TranslateConfig {
            strip_prefixes: Vec::new(),
            protocol: Protocol::Https,
            allow_untranslated: true,
            regexps: true,
            platform: platforms[0].clone(),
        },
        vec![Arc::new(mappings.clone())],
    );
    let table = RuleTable::new(mappings.current().expect("no file is read").configs.iter().cloned());
    for name in own.iter().map(String::as_str).chain(NAMES) {
        let Ok(image) = name.parse::<ImageName>() else { continue };
        for platform in &platforms {
            let wanted = Wanted { handler: "", platform, configs: None, tag: None };
            let found = table.find(name, &wanted, true);
            assert!(found.is_some() || !own.contains(name) || !for_all, "`{name}` has a rule and is not found by it");
            match translator.translate(&image, &wanted) {
                Ok(translated) => {
                    let shown = translated.locator.to_string();
                    // The same words may well be a part of the path: it is the login that is not shown.
                    let hidden = |url: Url| url.username().is_empty() && url.password().is_none();
                    assert!(
                        translated.locator.url().password().is_none() || shown.parse().is_ok_and(hidden),
                        "{:?}",
                        translated.locator
                    );
                }
                Err(error) => drop(Chain(&error).to_string()),
            }
        }
    }
}
