//! What is told of rules and settings that cannot be used.

use super::*;

fn images(rules: &str) -> (tempfile::TempDir, Images) {
    let dir = tempfile::tempdir().expect("a directory");
    let rules_dir = dir.path().join("rules");
    std::fs::create_dir(&rules_dir).expect("made");
    std::fs::write(rules_dir.join("a.yaml"), rules).expect("written");
    let mut config = imagestore::Config::new(dir.path().join("images"));
    config.translations_dir = Some(rules_dir);
    let mappings = config.mappings.clone();
    let images = Images::of(Store::open(config).expect("opened"), mappings);
    (dir, images)
}

#[tokio::test]
async fn problems_of_rules_are_told_before_any_pull_and_as_they_are_now() {
    let (dir, images) = images("translations: [{name: a, url: 'ftp://h/'}, {name: b, url: 'https://h/'}]");
    let told = images.rule_problems().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("rule 1 of translation file `a.yaml` is not used: its `url` cannot be used: scheme"));
    std::fs::remove_file(dir.path().join("rules/a.yaml")).expect("removed");
    assert!(images.rule_problems().await.is_empty());
}

#[tokio::test]
async fn problems_of_rules_fit_a_status() {
    let rule = format!("{{name: a, url: 'https://h/', format: {}}},", "x".repeat(5000));
    let (_dir, images) = images(&format!("translations: [{}]", rule.repeat(MAX_PROBLEMS + 3)));
    let told = images.rule_problems().await;
    assert_eq!(told.len(), MAX_PROBLEMS + 1);
    assert!(told.iter().all(|line| line.chars().count() <= MAX_PROBLEM), "{told:?}");
    assert_eq!(told[MAX_PROBLEMS], "3 more are in the log");
}
