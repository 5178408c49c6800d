use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn key() -> Key {
    Key { network: "net".to_owned(), container: "0123456789abcdef".to_owned(), link: "eth0".to_owned() }
}

fn list() -> NetworkList {
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge", "x": 1}]}).try_into().unwrap()
}

fn entry() -> Entry {
    Entry {
        netns: "/run/netns/x".to_owned(),
        cni_args: vec![("K8S_POD_NAME".to_owned(), "web-0".to_owned())],
        capability_args: Map::from_iter([("mac".to_owned(), json!("02::"))]),
        result: json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}),
        ..Entry::ours(key(), &list())
    }
}

struct Bed {
    dir: tempfile::TempDir,
    cache: Cache,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("deep"));
        Self { dir, cache }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("deep/results/net-0123456789abcdef-eth0")
    }

    fn said(&self) -> String {
        let error = self.cache.read(&key()).expect_err("refused");
        common::Chain(&error).to_string().replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

#[test]
fn an_entry_has_the_form_of_libcnis_and_our_mark() {
    let bed = Bed::new();
    bed.cache.write(&entry()).unwrap();
    let text = fs::read_to_string(bed.file()).unwrap();
    insta::assert_snapshot!(
        text.replace(&entry().config, "BASE64"),
        @r#"{"kind":"cniCacheV1","containerId":"0123456789abcdef","config":"BASE64","ifName":"eth0","networkName":"net","netns":"/run/netns/x","cniArgs":[["K8S_POD_NAME","web-0"]],"capabilityArgs":{"mac":"02::"},"result":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]},"virtlet.owner":"virtlet"}"#
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&bed.file()), mode(bed.file().parent().unwrap())), (0o600, 0o700));
    assert_eq!(bed.cache.read(&key()).unwrap().unwrap(), entry());
    assert_eq!(entry().list(&bed.cache).unwrap(), list());
    // Nothing but the entry is there, and it is replaced as a whole.
    let changed = Entry { result: json!({"cniVersion": "1.1.0"}), ..entry() };
    bed.cache.write(&changed).unwrap();
    assert_eq!(bed.cache.read(&key()).unwrap().unwrap(), changed);
    assert_eq!(fs::read_dir(bed.file().parent().unwrap()).unwrap().count(), 1);
    bed.cache.remove(&key()).unwrap();
    bed.cache.remove(&key()).unwrap();
    assert_eq!(bed.cache.read(&key()).unwrap(), None);
}

#[test]
fn an_entry_of_another_runtime_is_read_and_known_not_to_be_ours() {
    let bed = Bed::new();
    bed.cache.write(&entry()).unwrap();
    let mut theirs: Value = serde_json::from_str(&fs::read_to_string(bed.file()).unwrap()).unwrap();
    let members = theirs.as_object_mut().unwrap();
    members.remove("virtlet.owner").unwrap();
    members.insert("cniArgs".to_owned(), Value::Null);
    members.insert("capabilityArgs".to_owned(), Value::Null);
    fs::write(bed.file(), theirs.to_string()).unwrap();
    let read = bed.cache.read(&key()).unwrap().unwrap();
    assert!(!read.is_ours() && entry().is_ours());
    assert_eq!((read.cni_args, read.result), (Vec::new(), entry().result));
}

#[test]
fn a_temporary_file_left_by_a_crash_is_in_nobodys_way_and_goes_with_the_entry() {
    let bed = Bed::new();
    let temporary = bed.file().with_file_name(".net-0123456789abcdef-eth0.tmp");
    bed.cache.write(&entry()).unwrap();
    fs::rename(bed.file(), &temporary).unwrap();
    bed.cache.remove(&key()).unwrap();
    assert!(!temporary.exists());
    fs::write(&temporary, "half").unwrap();
    assert_eq!(bed.cache.read(&key()).unwrap(), None);
    bed.cache.write(&entry()).unwrap();
    assert_eq!(bed.cache.select(|name| name.starts_with("net-")).unwrap().len(), 1);
}

#[test]
fn a_link_in_the_place_of_a_temporary_file_is_not_followed() {
    let bed = Bed::new();
    bed.cache.write(&entry()).unwrap();
    let prize = bed.dir.path().join("prize");
    fs::write(&prize, "kept").unwrap();
    symlink(&prize, bed.file().with_file_name(".net-0123456789abcdef-eth0.tmp")).unwrap();
    bed.cache.write(&entry()).expect_err("a link");
    assert_eq!(fs::read_to_string(prize).unwrap(), "kept");
    // The link is gone, so the next try works.
    bed.cache.write(&entry()).unwrap();
}

#[test]
fn what_is_no_entry_is_an_error_that_names_it() {
    let bed = Bed::new();
    bed.cache.write(&entry()).unwrap();
    let good: Value = serde_json::from_str(&fs::read_to_string(bed.file()).unwrap()).unwrap();
    let with = |member: &str, value: Value| {
        let mut bad = good.clone();
        bad[member] = value;
        bad.to_string()
    };
    let half = good.to_string();
    let start = "`DIR/deep/results/net-0123456789abcdef-eth0` is no entry of a CNI result cache: ";
    for (text, expected) in [
        (String::new(), "EOF while parsing a value"),
        (half[..half.len() / 2].to_owned(), "EOF while parsing a string"),
        ("[]".to_owned(), "its kind is not `cniCacheV1`"),
        (json!({"cniVersion": "0.4.0", "ips": []}).to_string(), "its kind is not `cniCacheV1`"),
        (with("kind", json!("cniCacheV2")), "its kind is not `cniCacheV1`"),
        (with("containerId", json!("other")), "it is about another attachment than its name"),
        (with("networkName", json!("../x")), "it is about another attachment than its name"),
        (with("ifName", json!("eth1")), "it is about another attachment than its name"),
        (with("ifName", json!(1)), "invalid type: integer `1`, expected a string"),
        (with("cniArgs", json!([["a"]])), "invalid length 1"),
        (with("result", json!(null)), "it has no result"),
        (with("result", json!([])), "it has no result"),
        (" ".repeat(5 << 20), "it is not a regular file of at most 4 MiB"),
    ] {
        fs::write(bed.file(), &text).unwrap();
        let said = bed.said();
        let cause = said.strip_prefix(start).unwrap_or(&said);
        assert!(cause.starts_with(expected), "{said}");
    }
    fs::write(bed.file(), with("result", json!({"ips": [{"address": "x"}]}))).unwrap();
    assert!(bed.said().ends_with("its address `x` is not an address with a prefix length"), "{}", bed.said());
    fs::remove_file(bed.file()).unwrap();
    fs::create_dir(bed.file()).unwrap();
    assert!(bed.said().ends_with("it is not a regular file of at most 4 MiB"), "{}", bed.said());
}

#[test]
fn a_bad_configuration_in_an_entry_is_said() {
    let bed = Bed::new();
    let said = |config: &str| {
        let entry = Entry { config: config.to_owned(), ..entry() };
        let error = entry.list(&bed.cache).expect_err("refused");
        common::Chain(&error).to_string().replace(bed.dir.path().to_str().unwrap(), "DIR")
    };
    let file = "`DIR/deep/results/net-0123456789abcdef-eth0`";
    let no_json = format!("{file} is no entry of a CNI result cache: its configuration is not JSON in base64");
    assert_eq!(said("!"), no_json);
    assert_eq!(said(&BASE64_STANDARD.encode("{")), no_json);
    let refused = format!("the configuration in {file} of the CNI result cache cannot be used: `plugins` is missing");
    let said = said(&BASE64_STANDARD.encode(r#"{"name":"net","cniVersion":"1.0.0"}"#));
    assert!(said.starts_with(&refused), "{said}");
}

#[test]
fn a_full_or_forbidden_place_is_an_error() {
    let bed = Bed::new();
    fs::write(bed.dir.path().join("deep"), "a file").unwrap();
    let error = bed.cache.write(&entry()).expect_err("no directory");
    assert!(error.to_string().starts_with("failed to make `"), "{error}");
    assert!(bed.cache.read(&key()).is_err());
}

proptest! {
    #[test]
    fn no_bytes_in_the_place_of_an_entry_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0_usize..700, with in any::<u8>()) {
        let bed = Bed::new();
        bed.cache.write(&entry()).unwrap();
        let mut mutated = fs::read(bed.file()).unwrap();
        if let Some(byte) = mutated.get_mut(at) {
            *byte = with;
        }
        fs::write(bed.file(), mutated).unwrap();
        if let Ok(Some(read)) = bed.cache.read(&key()) {
            prop_assert_eq!(read.key(), key());
            let _ = read.list(&bed.cache);
        }
        fs::write(bed.file(), bytes).unwrap();
        prop_assert!(bed.cache.read(&key()).is_err());
    }
}
