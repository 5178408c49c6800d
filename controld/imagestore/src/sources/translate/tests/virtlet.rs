//! The cases of Virtlet's own test of its translator, with what differs here on purpose, and its configurations.

use super::*;

const CONFIG1: &str = r"
translations:
- {regexp: '^image(\d+)', url: 'http://example.net/image_$1.qcow2'}
- {regexp: 'image(\d+)', url: 'http://example.net/alt_$1.qcow2'}
- {name: image1, url: 'https://example.net/base.qcow2'}
";
const CONFIG2: &str = r"
prefix: prod
translations:
- {regexp: '^linux/(\d+\.\d+)', url: 'http://acme.org/linux_$1.qcow2'}
- {name: linux/1, url: 'https://acme.org/linux.qcow2'}
";

#[test]
fn names_are_translated_as_in_virtlet() {
    let cases = [
        ("strict", false, "image1", "https://example.net/base.qcow2"),
        // Virtlet leaves a name alone and its downloader puts the scheme before it; here that is one step.
        ("negative strict", false, "image2", "https://image2/"),
        ("strict precedes regexps", true, "image1", "https://example.net/base.qcow2"),
        ("regexp", true, "image2", "http://example.net/image_2.qcow2"),
        ("negative regexp", true, "image", "https://image/"),
        ("prefix", false, "prod/linux/1", "https://acme.org/linux.qcow2"),
        ("regexp with prefix", true, "prod/linux/2.11", "http://acme.org/linux_2.11.qcow2"),
        ("negative with prefix", false, "prod/image1", "https://prod/image1"),
        ("misleading with prefix", true, "prod/image1", "http://example.net/alt_1.qcow2"),
    ];
    for (what, regexps, name, expected) in cases {
        for configs in [[("config1", CONFIG1), ("config2", CONFIG2)], [("config2", CONFIG2), ("config1", CONFIG1)]] {
            let rules = Fixed::source(OriginKind::File, &configs);
            let translator = Translator::new(TranslateConfig { regexps, ..config() }, vec![rules]);
            let shown = ask(&translator, name);
            assert_eq!(shown.split(" by ").next(), Some(expected), "{what}");
        }
    }
    // The empty name is none here.
    assert!("".parse::<ImageName>().is_err());
}

#[test]
fn a_fixed_name_anywhere_comes_before_a_regexp_anywhere() {
    // In Virtlet a regexp of one configuration comes before a fixed name of the next, whichever that is today.
    let regexp = "prefix: a/b\ntranslations: [{regexp: '^.*$', url: 'https://h/regexp'}]";
    let fixed = "translations: [{name: a/b/c, url: 'https://h/fixed'}]";
    assert_eq!(ask(&files(&[("a", regexp), ("b", fixed)]), "a/b/c"), "https://h/fixed by rule 1 (`a/b/c`) of `b`");
}

#[test]
fn what_is_pushed_comes_before_files_in_each_pass() {
    // In Virtlet a file takes the place of a mapping of the same name.
    let text = |host: &str| {
        format!("translations: [{{name: a, url: 'https://{host}/a'}}, {{regexp: '^b', url: 'https://{host}/b'}}]")
    };
    let (of_file, of_mapping) = (text("file"), text("mapping"));
    let long = format!("prefix: p\n{of_file}");
    let files = Fixed::source(OriginKind::File, &[("same", &of_file), ("long", &long)]);
    let mappings = Fixed::source(
        OriginKind::Mapping,
        &[("same", &of_mapping), ("z", "translations: [{regexp: '^p/', url: 'https://mapping/p'}]")],
    );
    for sources in [vec![files.clone(), mappings.clone()], vec![mappings, files]] {
        let translator = Translator::new(config(), sources);
        assert_eq!(ask(&translator, "a"), "https://mapping/a by rule 1 (`a`) of mapping `same`");
        assert_eq!(ask(&translator, "b"), "https://mapping/b by rule 2 (`^b`) of mapping `same`");
        // A fixed name of a file still comes before a regexp that was pushed, and that before a longer prefix.
        assert_eq!(ask(&translator, "p/a"), "https://file/a by rule 1 (`a`) of `long`");
        assert_eq!(ask(&translator, "p/b"), "https://mapping/p by rule 1 (`^p/`) of mapping `z`");
    }
}

#[test]
fn virtlets_own_configurations_are_read() {
    let configs = [
        // Of its deployment.
        "
translations:
  - name: cirros
    url: https://github.com/mirantis/virtlet/releases/download/v0.9.3/cirros.img
  - name: fedora
    url: https://dl.fedoraproject.org/pub/fedora/linux/releases/29/Cloud/x86_64/images/Fedora-Cloud-Base-29-1.2.x86_64.qcow2
",
        // Of its document.
        r"
prefix: my-prefix
translations:
- name: cirros
  url: https://download.cirros-cloud.net/0.3.5/cirros-0.3.5-x86_64-disk.img
- name: ubuntu/16.04
  url: https://cloud-images.ubuntu.com/xenial/current/xenial-server-cloudimg-amd64-disk1.img
- regexp: 'cirros/(\d\.\d\.\d)'
  url: 'https://download.cirros-cloud.net/$1/cirros-$1-x86_64-disk.img'
- regexp: 'centos/(\d+)-(\d+)'
  url: 'https://cloud.centos.org/centos/$1/images/CentOS-$1-x86_64-GenericCloud-$2.qcow2'
",
        // As its Go client writes one.
        r#"{"prefix": "", "translations": null, "transports": null}"#,
        r#"{"translations": [{"name": "a", "url": "u"}], "transports": {"": {"maxRedirects": null, "tls": null}}}"#,
    ];
    for text in configs {
        let (_, problems) = file::parse(Origin::file("f"), text).expect("a configuration");
        let told = told(&problems);
        assert!(told.iter().all(|problem| problem.contains("matches anywhere in a name")), "{told:?}");
    }
    let translator = files(&[("f", configs[1])]);
    let centos = "https://cloud.centos.org/centos/7/images/CentOS-7-x86_64-GenericCloud-01.qcow2";
    assert_eq!(ask(&translator, "virtlet.cloud/my-prefix/centos/7-01").split(' ').next(), Some(centos));
    assert_eq!(ask(&translator, "virtlet.cloud/cirros"), "https://cirros/ by default https rule");
}
