//! What a path asks for. Pure; a path is anybody's text.

use common::dns::is_label;
use hyper::{Method, StatusCode};

use super::refusal::Refusal;
use crate::group::{Group, VERSION};
use crate::verbs::{Does, EXPAND, HEALTH, REFUSED, REFUSED_ALONE, VERBS, VERSION as VERSION_PATH, Verb, group};

/// Longest name of an object.
const MAX_NAME: usize = 253;

/// What is asked for.
#[derive(Debug)]
pub(super) enum Route<'a> {
    /// All groups.
    Groups,
    /// The one group.
    Group,
    /// What is in it.
    Resources,
    /// Schemas, for OpenAPI of this version.
    OpenApi(u8),
    /// Of the server.
    Version,
    Health,
    /// A VM that is not stored.
    Expand {
        namespace: &'a str,
    },
    /// A subresource of an object.
    Verb {
        verb: &'static Verb,
        namespace: &'a str,
        name: &'a str,
        port: Option<u16>,
    },
    /// One of KubeVirt's that there is not, and what does instead.
    Instead {
        what: String,
        instead: &'static str,
    },
}

/// What is asked for by this method at this path.
pub(super) fn route<'a>(ours: Group, method: &Method, path: &'a str) -> Result<Route<'a>, Refusal> {
    let refused =
        |method: &str| Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("`{path}` is asked for by {method} alone"));
    let only = |wanted: &'static str, route| if method == wanted { Ok(route) } else { Err(refused(wanted)) };
    match path {
        "/apis" | "/apis/" => return only("GET", Route::Groups),
        "/openapi/v2" => return only("GET", Route::OpenApi(2)),
        "/openapi/v3" => return only("GET", Route::OpenApi(3)),
        "/healthz" | "/livez" | "/readyz" => return only("GET", Route::Health),
        _ => {}
    }
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, "the server has nothing at this path");
    let group = group(ours);
    let below = path.strip_prefix("/apis/").and_then(|path| path.strip_prefix(&*group)).ok_or_else(unknown)?;
    let below = match below {
        "" | "/" => return only("GET", Route::Group),
        below => below.strip_prefix('/').ok_or_else(unknown)?,
    };
    let mut words = below.trim_end_matches('/').split('/');
    if words.next() != Some(VERSION) {
        return Err(unknown());
    }
    let words: Vec<&str> = words.collect();
    match words[..] {
        [] => only("GET", Route::Resources),
        [VERSION_PATH] => only("GET", Route::Version),
        [HEALTH] => only("GET", Route::Health),
        [word] => {
            let &(what, instead) = REFUSED_ALONE.iter().find(|(name, _)| *name == word).ok_or_else(unknown)?;
            Ok(Route::Instead { what: what.to_owned(), instead })
        }
        ["namespaces", namespace, EXPAND] if is_label(namespace) => only("PUT", Route::Expand { namespace }),
        ["namespaces", namespace, of, name, ref rest @ ..] if is_label(namespace) && is_name(name) => {
            let Some((verb, port)) = find(of, rest)? else {
                let refused = REFUSED.iter().find(|(plural, name, _)| *plural == of && rest.first() == Some(name));
                let &(_, name, instead) = refused.ok_or_else(unknown)?;
                return Ok(Route::Instead { what: format!("{of}/{name}"), instead });
            };
            only(verb.method(), Route::Verb { verb, namespace, name, port })
        }
        _ => Err(unknown()),
    }
}

fn find(of: &str, rest: &[&str]) -> Result<Option<(&'static Verb, Option<u16>)>, Refusal> {
    let named = |name: &str| VERBS.iter().find(|verb| verb.of == of && verb.name == name);
    let Some(("portforward", rest)) = rest.split_first().map(|(first, rest)| (*first, rest)) else {
        return Ok(named(&rest.join("/")).map(|verb| (verb, None)));
    };
    let wrong = |text| Refusal::new(StatusCode::BAD_REQUEST, text);
    let port = match rest {
        [port] | [port, "tcp"] => port,
        [_, _] => return Err(wrong("ports are forwarded over TCP alone")),
        _ => return Err(wrong("the path has to end in portforward/PORT")),
    };
    // Digits alone: a sign is none.
    let port = Some(*port).filter(|port| port.bytes().all(|digit| digit.is_ascii_digit()));
    let port = port.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0);
    let port = port.ok_or_else(|| wrong("a port is from 1 to 65535"))?;
    Ok(named("portforward").filter(|verb| verb.does == Does::PortForward).map(|verb| (verb, Some(port))))
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

    fn found(method: Method, path: &str) -> String {
        match route(Group::KubeVirt, &method, path) {
            Ok(Route::Verb { verb, namespace, name, port }) => {
                format!("{} {} of {namespace}/{name} {}", verb.right(), verb.resource(), port.unwrap_or_default())
            }
            Ok(Route::Instead { what, .. }) => format!("no {what}"),
            Ok(other) => format!("{other:?}"),
            Err(refusal) => refusal.code.as_u16().to_string(),
        }
    }

    #[test]
    fn paths_of_clients_are_known() {
        let put = |path: &str| found(Method::PUT, &format!("{AT}/{path}"));
        let get = |path: &str| found(Method::GET, &format!("{AT}/{path}"));
        assert_eq!(put("virtualmachines/db/start"), "update virtualmachines/start of default/db 0");
        assert_eq!(
            put("virtualmachineinstances/a.b/softreboot"),
            "update virtualmachineinstances/softreboot of default/a.b 0"
        );
        assert_eq!(get("virtualmachineinstances/db/vnc"), "get virtualmachineinstances/vnc of default/db 0");
        assert_eq!(
            get("virtualmachineinstances/db/vnc/screenshot"),
            "get virtualmachineinstances/vnc/screenshot of default/db 0"
        );
        for path in ["portforward/22", "portforward/22/tcp"] {
            let wanted = "get virtualmachines/portforward of default/db 22";
            assert_eq!(get(&format!("virtualmachines/db/{path}")), wanted);
        }
        assert_eq!(put("expand-vm-spec"), "Expand { namespace: \"default\" }");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.io/v1/version"), "Version");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.io/v1"), "Resources");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.io"), "Group");
        assert_eq!(found(Method::GET, "/apis"), "Groups");
    }

    #[test]
    fn what_there_is_not_is_told_apart() {
        let get = |path: &str| found(Method::GET, &format!("{AT}/{path}"));
        assert_eq!(get("virtualmachineinstances/db/usbredir"), "no virtualmachineinstances/usbredir");
        assert_eq!(get("virtualmachineinstances/db/sev/fetchcertchain"), "no virtualmachineinstances/sev");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.io/v1/guestfs"), "no guestfs");
        for path in [
            "portforward",
            "portforward/0",
            "portforward/+22",
            "portforward/65536",
            "portforward/22/udp",
            "portforward/22/tcp/x",
        ] {
            assert_eq!(get(&format!("virtualmachines/db/{path}")), "400", "{path}");
        }
        assert_eq!(get("virtualmachines/db/start"), "405");
        for path in [
            "virtualmachines/db",
            "virtualmachines/db/vnc",
            "virtualmachines/db/start/x",
            "virtualmachines//start",
            "pods/db/exec",
            "virtualmachines/%2e%2e/start",
            "virtualmachines/../start",
            "virtualmachines/DB/expand-spec",
        ] {
            assert_eq!(get(path), "404", "{path}");
        }
        // Of another group.
        assert_eq!(found(Method::GET, "/apis/subresources.virtlet.k8s/v1"), "404");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.iox/v1"), "404");
        assert_eq!(found(Method::GET, "/apis/subresources.kubevirt.io/v2"), "404");
    }

    proptest! {
        #[test]
        fn any_path_has_an_answer(path in "(/(apis|namespaces|v1|subresources.kubevirt.io|virtualmachines|portforward|[ -~]{0,12})){0,9}") {
            let _ = route(Group::KubeVirt, &Method::GET, &path);
        }
    }
}
