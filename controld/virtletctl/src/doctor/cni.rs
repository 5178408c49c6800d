//! CNI: which network pods get, and whether its plugins would be started, by the word of `tapmanager networks`.

use super::facts::{Facts, Networks};
use super::finding::Finding;
use super::host::Host;

const CONFIGURATION: &str = "cni.configuration";
const PLUGINS: &str = "cni.plugins";

pub(super) fn look(_host: &Host, facts: &Facts) -> Vec<Finding> {
    match &facts.networks {
        Ok(networks) => judged(networks),
        Err(error) => [CONFIGURATION, PLUGINS].map(|check| Finding::unknown(check, error)).into(),
    }
}

fn judged(networks: &Networks) -> Vec<Finding> {
    let Some(default) = networks.networks.first() else {
        let why = networks.trouble.as_deref().unwrap_or("no network is configured");
        let mend = "install the CNI of the cluster, or deploy/10-virtlet.conflist in /etc/cni/net.d";
        return vec![Finding::failure(CONFIGURATION, why, mend), Finding::unknown(PLUGINS, "there is no network")];
    };
    let others = match networks.networks.len() {
        1 => String::new(),
        all => format!(", and {} others", all - 1),
    };
    let configuration = if networks.broken.is_empty() {
        Finding::ok(CONFIGURATION, format!("the default network is `{}`{others}", default.name))
    } else {
        let seen = format!("the default network is `{}`{others}; {}", default.name, networks.broken.join("; "));
        Finding::warning(CONFIGURATION, seen, "correct the files, or remove them")
    };
    let troubles = |plugins: &[super::facts::Plugin]| -> Vec<String> {
        let told = plugins.iter().filter_map(|plugin| Some((plugin, plugin.trouble.as_ref()?)));
        told.map(|(plugin, trouble)| format!("plugin `{}`: {trouble}", plugin.kind)).collect()
    };
    let of_default = troubles(&default.plugins);
    let of_others: Vec<_> = networks.networks.iter().skip(1).flat_map(|network| troubles(&network.plugins)).collect();
    let mend = "install the plugins (Debian: containernetworking-plugins), or mend their permissions";
    let plugins = if !of_default.is_empty() {
        Finding::failure(PLUGINS, of_default.join("; "), mend)
    } else if !of_others.is_empty() {
        Finding::warning(PLUGINS, format!("of other networks than the default one: {}", of_others.join("; ")), mend)
    } else {
        let kinds: Vec<_> = default.plugins.iter().map(|plugin| plugin.kind.as_str()).collect();
        Finding::ok(PLUGINS, format!("{} can be started", kinds.join(", ")))
    };
    vec![configuration, plugins]
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::program::json;
    use super::*;

    fn told(text: &str) -> Vec<(State, String)> {
        let networks: Networks = json(text).expect("as tapmanager prints it");
        judged(&networks).into_iter().map(|finding| (finding.state, finding.seen)).collect()
    }

    #[test]
    fn the_default_network_decides() {
        let of = |first: &str, second: &str| {
            told(&format!(
                r#"{{"networks": [{{"name": "a", "plugins": [{{"type": "ptp", "path": null, "trouble": {first}}}]}},
                    {{"name": "b", "plugins": [{{"type": "vlan", "path": "/x", "trouble": {second}}}]}}],
                    "broken": [], "trouble": null}}"#
            ))
        };
        let well = of("null", "null");
        assert_eq!(well[0], (State::Ok, "the default network is `a`, and 1 others".into()));
        assert_eq!(well[1], (State::Ok, "ptp can be started".into()));
        assert_eq!(of(r#""gone""#, "null")[1], (State::Failure, "plugin `ptp`: gone".into()));
        assert_eq!(of("null", r#""gone""#)[1].0, State::Warning);
    }

    #[test]
    fn no_network_is_a_failure_and_a_broken_file_a_warning() {
        let none = told(r#"{"networks": [], "broken": ["x"], "trouble": "no network is configured"}"#);
        assert_eq!(none[0], (State::Failure, "no network is configured".into()));
        let broken = told(r#"{"networks": [{"name": "a", "plugins": []}], "broken": ["x"], "trouble": null}"#);
        assert_eq!(broken[0], (State::Warning, "the default network is `a`; x".into()));
    }
}
