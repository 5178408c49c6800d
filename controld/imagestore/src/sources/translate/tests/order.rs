//! The order of loading means nothing.

use proptest::prelude::*;

use super::*;

const REGEXPS: &[&str] = &["a", "^b", "b$", "(a)/"];

/// A configuration's name, prefix and rules: by name, by regexp or both.
type Written = (String, String, Vec<(Option<String>, Option<String>)>);

fn written() -> impl Strategy<Value = Vec<Written>> {
    let rule = (
        prop::option::of("a|b|a/b|b/a"),
        prop::option::of(prop::sample::select(REGEXPS)).prop_map(|one| one.map(str::to_owned)),
    );
    let config = ("(|a|a/b|a/)", prop::collection::vec(rule, 0..4));
    prop::collection::btree_map("[a-c]{1,2}", config, 0..6)
        .prop_map(|configs| configs.into_iter().map(|(name, (prefix, rules))| (name, prefix, rules)).collect())
}

fn text((name, prefix, rules): &Written) -> (String, String) {
    let rules: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(index, (fixed, regexp))| {
            serde_json::json!({"name": fixed, "regexp": regexp, "url": format!("https://{name}.example/{index}")})
        })
        .collect();
    (name.clone(), serde_json::json!({"prefix": prefix, "translations": rules}).to_string())
}

fn source(kind: OriginKind, configs: &[Written]) -> Arc<dyn RuleSource> {
    let texts: Vec<_> = configs.iter().map(text).collect();
    Fixed::source(kind, &texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn shuffling_changes_no_answer(
        (files, shuffled_files) in written().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        (pushed, shuffled_pushed) in written().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        sources_swapped in any::<bool>(),
        name in "(a/)?(b/)?[ab]",
    ) {
        let plain = Translator::new(
            config(),
            vec![source(OriginKind::Mapping, &pushed), source(OriginKind::File, &files)],
        );
        let mut sources =
            vec![source(OriginKind::Mapping, &shuffled_pushed), source(OriginKind::File, &shuffled_files)];
        if sources_swapped {
            sources.reverse();
        }
        let shuffled = Translator::new(config(), sources);
        prop_assert_eq!(ask(&shuffled, &name), ask(&plain, &name));
    }

    /// What the documents say of the order, said once more in the plainest way.
    #[test]
    fn the_rule_is_the_one_that_the_documents_say(files in written(), name in "(a/)?(b/)?[ab]") {
        let mut candidates = Vec::new();
        for (config, prefix, rules) in &files {
            let prefix = prefix.trim_end_matches('/');
            let Some(rest) = (if prefix.is_empty() { Some(name.as_str()) } else {
                name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'))
            }) else { continue };
            for (index, (fixed, regexp)) in rules.iter().enumerate() {
                let by_regexp = || regexp.as_deref().is_some_and(|regexp| regex::Regex::new(regexp).expect("one").is_match(rest));
                let pass = if fixed.as_deref() == Some(rest) { 1 } else if by_regexp() { 2 } else { continue };
                candidates.push((pass, usize::MAX - prefix.len(), config.clone(), index));
            }
        }
        candidates.sort();
        let expected = match candidates.first() {
            Some((_, _, config, index)) => format!("https://{config}.example/{index}"),
            None => format!("https://{name}{}", if name.contains('/') { "" } else { "/" }),
        };
        let translator = Translator::new(config(), vec![source(OriginKind::File, &files)]);
        let shown = ask(&translator, &name);
        prop_assert_eq!(shown.split(" by ").next(), Some(expected.as_str()));
    }
}
