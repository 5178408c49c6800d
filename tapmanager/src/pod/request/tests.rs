use super::*;

fn request() -> Attach {
    Attach {
        namespace: "kube-system".into(),
        name: "vm-0.test".into(),
        dns: Some(Dns {
            servers: vec![],
            searches: vec!["default.svc.cluster.local".into(), ".".into()],
            options: vec!["ndots:5".into()],
        }),
        ..Attach::new("p1".parse().expect("pod id"))
    }
}

#[test]
fn what_kubernetes_sends_is_taken() {
    assert_eq!(check(&request()), Ok(()));
    let mut full = request();
    (full.uid, full.hostname) = ("6f0b-1".into(), "vm".into());
    assert_eq!(check(&full), Ok(()));
}

#[test]
fn texts_that_could_do_harm_are_refused_by_name() {
    let long = "x".repeat(254);
    type Set = fn(&mut Attach, &str);
    let fields: [(&str, Set); 6] = [
        ("namespace", |a, text| a.namespace = text.into()),
        ("name", |a, text| a.name = text.into()),
        ("uid", |a, text| a.uid = text.into()),
        ("hostname", |a, text| a.hostname = text.into()),
        ("dns.searches", |a, text| a.dns.as_mut().expect("dns").searches.push(text.into())),
        ("dns.options", |a, text| a.dns.as_mut().expect("dns").options.push(text.into())),
    ];
    for (field, set) in fields {
        for bad in ["a b", "a\nb", "ü", "a\0", &long] {
            let mut attach = request();
            set(&mut attach, bad);
            let error = check(&attach).expect_err(bad);
            assert_eq!(error.field, field, "{bad:?}");
        }
        if field != "dns.options" {
            for injected in ["a;K8S_POD_NAME=b", "a=b", "../x"] {
                let mut attach = request();
                set(&mut attach, injected);
                assert!(check(&attach).is_err(), "{field} takes {injected}");
            }
        }
    }
}

#[test]
fn names_must_be_there_and_lists_must_end() {
    let mut attach = request();
    attach.namespace.clear();
    assert_eq!(check(&attach).expect_err("empty").field, "namespace");
    let mut attach = request();
    attach.dns.as_mut().expect("dns").servers = vec![[10, 0, 0, 1].into(); 33];
    assert_eq!(check(&attach).expect_err("many").field, "dns.servers");
}
