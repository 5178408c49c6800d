use serde_json::json;

use super::*;

#[test]
fn libvirts_names_are_taken_in_any_case() {
    let said = json!({
        "Mode": "custom", "match": "exact", "CHECK": "partial",
        "model": { "value": "Westmere", "fallback": "forbid", "VendorID": "GenuineIntel" },
        "vendor": "Intel", "topology": { "sockets": 2, "cores": 2 }, "cache": { "level": 3, "mode": "emulate" },
        "features": [{ "name": "aes", "policy": "disable" }, { "name": "x2apic" }], "numa": null,
    });
    let setting = CpuSetting::of(&said).expect("a CPU");
    assert_eq!(setting.topology.map(|topology| topology.vcpus()), Some(4));
    let written = serde_json::to_value(&setting).expect("written");
    insta::assert_snapshot!(written, @r#"{"cache":{"level":3,"mode":"emulate"},"check":"partial","features":[{"name":"aes","policy":"disable"},{"name":"x2apic","policy":"require"}],"match":"exact","mode":"custom","model":{"fallback":"forbid","name":"Westmere","vendor_id":"GenuineIntel"},"topology":{"cores":2,"dies":1,"sockets":2,"threads":1},"vendor":"Intel"}"#);
    assert_eq!(serde_json::from_value::<CpuSetting>(written).expect("as it is on record"), setting);
    let short = CpuSetting::of(&json!({ "model": "Westmere" })).expect("a CPU");
    assert_eq!((short.mode, short.model.expect("named").name), (CpuMode::Custom, "Westmere".to_owned()));
}

#[test]
fn what_is_no_cpu_is_refused_by_name() {
    let many: Vec<_> = (0..300).map(|n| json!({ "name": format!("f{n}") })).collect();
    let refusals: Vec<String> = [
        json!([]),
        json!({ "mode": "maximum", "hack": 1 }),
        json!({ "mode": "maximum", "MODE": "maximum" }),
        json!({ "mode": "best" }),
        json!({ "mode": "maximum", "model": "Westmere" }),
        json!({ "match": "exact" }),
        json!({ "model": { "fallback": "allow" } }),
        json!({ "model": { "value": "<x/>" } }),
        json!({ "model": { "value": "Westmere", "vendorid": "Intel" } }),
        json!({ "mode": "maximum", "vendor": "a,b" }),
        json!({ "mode": "maximum", "topology": { "cores": 0 } }),
        json!({ "mode": "maximum", "topology": { "cores": 1.5 } }),
        json!({ "mode": "maximum", "topology": 4 }),
        json!({ "mode": "maximum", "cache": { "level": 4, "mode": "emulate" } }),
        json!({ "mode": "maximum", "cache": { "level": 3 } }),
        json!({ "mode": "maximum", "features": [{ "name": "aes" }, { "name": "aes" }] }),
        json!({ "mode": "maximum", "features": [{ "name": "aes", "policy": "maybe" }] }),
        json!({ "mode": "maximum", "features": many }),
        json!({ "mode": "maximum", "numa": { "cell": [] } }),
    ]
    .iter()
    .map(|said| CpuSetting::of(said).expect_err("no CPU").to_string())
    .collect();
    insta::assert_snapshot!(refusals.join("\n"));
}
