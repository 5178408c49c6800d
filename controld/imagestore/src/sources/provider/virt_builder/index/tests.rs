//! Every verdict on an index that the tools of virt-builder were seen to give, and ours beside it.

use common::Reason;

use super::*;
use crate::sources::provider::HashAlg;

const SHA512: &str = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";
const SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn sound() -> String {
    "[a]\nname=A\narch=x86_64\nfile=a.xz\nsize=100\n".to_owned()
}

fn read(text: &str) -> Result<Index, Reason> {
    parse(text.as_bytes(), false)
}

fn only(text: &str) -> Entry {
    let index = read(text).expect("an index");
    assert_eq!(index.skipped, [], "{text}");
    let [entry] = <[Entry; 1]>::try_from(index.entries).expect("one entry");
    entry
}

/// With a line more.
fn with(line: &str) -> String {
    sound() + line + "\n"
}

/// With another value.
fn having(field: &str, value: &str) -> String {
    let lines = sound();
    let lines: Vec<_> = lines.lines().filter(|line| !line.starts_with(&format!("{field}="))).collect();
    format!("{}\n{field}={value}\n", lines.join("\n"))
}

#[test]
fn all_fields_are_read() {
    let text = format!(
        "# comment\n[fedora-40] \t \nname=Fedora 40\nosinfo=fedora40\narch=x86_64\nfile=sub/fedora-40.xz\nsig=old.sig\n\
         checksum={SHA512}\nrevision=3\nformat=qcow2\nsize=6442450944\ncompressed_size=0x800000\nexpand=/dev/sda3\n\
         lvexpand=/dev/f/root\nnotes=One\n two\n# not part of it\n\tthree \nnotes[de]=Eins\nhidden=true\naliases=fedora  f40 \nnew=thing\n"
    );
    insta::assert_debug_snapshot!(only(&text));
}

#[test]
fn what_both_tools_accept_we_accept() {
    for (case, text) in [
        ("ok", sound()),
        ("hdr_trailing", sound().replace("[a]", "[a]  \t")),
        ("noblank_field", with("foo.bar_9[x,y.z_1]=")),
        ("blanks_between", format!("{}\n\n{}", sound(), sound().replace("[a]", "[b]"))),
        ("csum_both", with(&format!("checksum={}\nchecksum[sha512]={SHA512}", "0".repeat(128)))),
        ("fmt_vmdk", with("format=vmdk")),
        ("comment_in_notes", with("notes=a\n b\n# c\n d")),
        ("blank_then_field", with("\nosinfo=x")),
        ("blank_after_header", sound().replace("[a]\n", "[a]\n\n")),
        ("blank_in_notes", with("notes=a\n\n b")),
        ("[b] directly after [a]'s fields", sound() + &sound().replace("[a]", "[b]")),
        ("rev_hex", having("revision", "0x1f")),
        ("arch_leadsp", having("arch", " x86_64")),
        ("alias_dblspace", with("aliases=x  y")),
        ("alias_empty", with("aliases=")),
        ("equals in a value", with("name2=a=b")),
        ("continued notes", with("notes=a\n b")),
    ] {
        let index = read(&text).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(index.skipped, [], "{case}");
        assert!(!index.entries.is_empty(), "{case}");
    }
    assert_eq!(read("").expect("empty"), Index::default());
    assert_eq!(read("# only this\n\n").expect("comments"), Index::default());
}

#[test]
fn values_are_as_both_tools_read_them_or_stricter() {
    assert_eq!(only(&having("revision", "0x1f")).revision, 31);
    assert_eq!(only(&sound()).revision, 1);
    assert_eq!(only(&having("size", "0x800000")).size, 0x80_0000);
    assert_eq!(only(&having("arch", " x86_64")).arch.architecture, "amd64");
    assert_eq!(only(&with("aliases= x  y ")).aliases, ["x", "y"]);
    assert_eq!(only(&with("aliases=")).aliases, [""; 0]);
    assert_eq!(only(&with("notes=a\n b\n# c\n\n  d")).notes[""], "a\nb\n d");
    assert_eq!(only(&having("name", " padded ")).title.as_deref(), Some(" padded "));
    assert_eq!(only(&with("format=auto")).format, None);
    assert_eq!(only(&with("format=vmdk")).format.as_deref(), Some("vmdk"));

    let hashes = |lines: &str| only(&with(lines)).checksums.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (zeros, zeros_256) = ("0".repeat(128), "0".repeat(64));
    assert_eq!(hashes(&format!("checksum={zeros}\nchecksum[sha512]={SHA512}")), [format!("sha512:{SHA512}")]);
    assert_eq!(hashes(&format!("checksum[sha512]={SHA512}\nchecksum={zeros}")), [format!("sha512:{SHA512}")]);
    assert_eq!(hashes(&format!("checksum={SHA512}")), [format!("sha512:{SHA512}")]);
    // virt-builder checks nothing then.
    assert_eq!(hashes(&format!("checksum[sha256]={SHA256}")), [format!("sha256:{SHA256}")]);
    assert_eq!(
        hashes(&format!("checksum[sha256]={zeros_256}\nchecksum={SHA512}\nchecksum[new]=x")),
        [format!("sha512:{SHA512}"), format!("sha256:{zeros_256}")]
    );
}

#[test]
fn architectures_go_by_all_their_names() {
    for (written, ours, variant) in [
        ("x86_64", "amd64", None),
        ("amd64", "amd64", None),
        ("aarch64", "arm64", Some("v8")),
        ("arm64", "arm64", Some("v8")),
        ("i686", "386", None),
        ("i386", "386", None),
        ("armv7l", "arm", Some("v7")),
        ("ppc64le", "ppc64le", None),
        ("ppc64", "ppc64", None),
        ("s390x", "s390x", None),
        ("riscv64", "riscv64", None),
        ("sparc64", "sparc64", None),
    ] {
        let arch = only(&having("arch", written)).arch;
        assert_eq!((arch.architecture.as_str(), arch.variant.as_deref()), (ours, variant), "{written}");
    }
    assert_eq!(only(&with("osinfo=win2k22")).arch.os, "windows");
    assert_eq!(only(&sound()).arch.os, "linux");
}

#[test]
fn syntax_errors_refuse_the_whole_index() {
    for (case, text) in [
        ("no_final_newline", sound().trim_end().to_owned()),
        ("crlf", sound().replace('\n', "\r\n")),
        ("one crlf", sound().replace("[a]\n", "[a]\r\n")),
        ("bom", format!("\u{feff}{}", sound())),
        ("space_section", sound().replace("[a]", "[a b]")),
        ("slash_section", sound().replace("[a]", "[a/b]")),
        ("space before the end of the name", sound().replace("[a]", "[a ]")),
        ("junk after a section", sound().replace("[a]", "[a] b")),
        ("leading_cont", format!(" x\n{}", sound())),
        ("continuation after a section", sound().replace("[a]\n", "[a]\n x\n")),
        ("indented_comment", sound().replace("[a]\n", "[a]\n # x\n")),
        ("indented comment first", format!(" # x\n{}", sound())),
        ("field_before_section", format!("name=x\n{}", sound())),
        ("empty_section", sound().replace("[a]", "[]")),
        ("open section", sound().replace("[a]", "[a")),
        ("space_key", with("key =x")),
        ("empty key", with("=x")),
        ("empty_subkey", with("foo[]=x")),
        ("open subkey", with("foo[x=y")),
        ("junk after a subkey", with("foo[x]y=z")),
        ("dash_key", with("key-with-dash=x")),
        ("dash in a subkey", with("key[a-b]=x")),
        ("junk", with("junk")),
        ("NUL", having("file", "a.xz\0.evil")),
        ("form feed", with("notes=a\x0cb")),
        ("escape", with("notes=a\x1b[31m")),
        ("carriage return", with("notes=a\rb")),
        ("dup_section", sound() + &sound()),
        ("dup_section by another name of the architecture", sound() + &having("arch", "amd64")),
        ("dup_field", with("name=again")),
        ("dup_subfield", with("notes[de]=a\nnotes[de]=b")),
        ("too long", with(&format!("notes={}", "x".repeat(MAX_VALUE + 1)))),
        ("too long in all", with(&format!("notes=a\n{}", " xxxxxxxx\n".repeat(MAX_VALUE / 8)))),
    ] {
        assert!(read(&text).is_err(), "{case}");
    }
    let error = parse(b"[a]\nname=\xff\n", false).expect_err("no text");
    assert_eq!(error.to_string(), "not UTF-8 at byte 9");
}

#[test]
fn leniency_is_for_the_ends_of_lines_alone() {
    for text in [sound().trim_end().to_owned(), sound().replace('\n', "\r\n"), format!("\u{feff}{}", sound())] {
        assert_eq!(parse(text.as_bytes(), true).expect("lenient"), read(&sound()).expect("sound"));
    }
    for text in [with("junk"), with("a=\0"), with("a=b\rc"), sound() + &sound()] {
        assert!(parse(text.as_bytes(), true).is_err(), "{text}");
    }
}

#[test]
fn nonsense_in_a_field_costs_its_section_alone() {
    let no = |field: &str| {
        sound().lines().filter(|line| !line.starts_with(&format!("{field}="))).map(|line| format!("{line}\n")).collect()
    };
    let cases: Vec<(&str, String)> = vec![
        ("no_arch", no("arch")),
        ("no_file", no("file")),
        ("no_size", no("size")),
        ("no fields at all", "[a]\n".to_owned()),
        ("empty arch", having("arch", "")),
        ("odd arch", having("arch", "x86 64")),
        ("abs_path", having("file", "/etc/passwd")),
        ("uri_path", having("file", "http://evil.example/a.xz")),
        ("file URI", having("file", "file:///etc/passwd")),
        ("empty_file", having("file", "")),
        ("dotdot", having("file", "../a.xz")),
        ("dotdot within", having("file", "x/../../a.xz")),
        ("dotdot encoded", having("file", "%2e%2E/a.xz")),
        ("dotdot half encoded", having("file", ".%2e/a.xz")),
        ("slash encoded", having("file", "x%2f..%2f..%2fa.xz")),
        ("backslash", having("file", "..\\a.xz")),
        ("query", having("file", "a.xz?x=y")),
        ("fragment", having("file", "a.xz#y")),
        ("double slash", having("file", "x//a.xz")),
        ("another host", having("file", "//evil.example/a.xz")),
        ("dot", having("file", "./a.xz")),
        ("long path", having("file", &"x".repeat(5000))),
        ("a URL's percent sign", having("file", "a%20b.xz")),
        ("rev_bad", having("revision", "one")),
        ("rev_neg", having("revision", "-5")),
        ("rev empty", having("revision", "")),
        ("hidden_yes", with("hidden=yes")),
        ("hidden upper case", with("hidden=True")),
        ("csize_bad", with("compressed_size=1k")),
        ("size_ovf", having("size", "99999999999999999999")),
        ("size 64 bits", having("size", "18446744073709551615")),
        ("size_suffix", having("size", "8G")),
        ("size_trailsp", having("size", "100 ")),
        ("size_leadsp", having("size", " 100")),
        ("size_neg", having("size", "-1")),
        ("size plus", having("size", "+1")),
        ("size hex of nothing", having("size", "0x")),
        ("cont_any_field", having("name", "a\n b")),
        ("continued size", having("size", "100\n 0")),
        ("short checksum", with("checksum=abcd")),
        ("checksum of another length", with(&format!("checksum[sha256]={SHA512}"))),
        ("no hex", with(&format!("checksum={}", "x".repeat(128)))),
        ("only unknown checksums", with("checksum[blake3]=abcd")),
    ];
    for (case, text) in cases {
        let index = read(&(sound().replace("[a]", "[b]") + &text)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(index.entries.len(), 1, "{case}");
        assert_eq!(index.skipped.len(), 1, "{case}");
        assert_eq!((index.entries[0].name.as_str(), index.skipped[0].name.as_str()), ("b", "a"), "{case}");
    }
}

#[test]
fn weak_checksums_are_read_as_what_they_are() {
    let entry = only(&with(&format!("checksum[md5]={}\nchecksum[sha1]={}", "a".repeat(32), "B".repeat(40))));
    let algs: Vec<_> = entry.checksums.iter().map(|hash| hash.alg()).collect();
    assert_eq!(algs, [HashAlg::Sha1, HashAlg::Md5]);
}

/// An entry as its maker would write it.
fn written(entry: &Entry) -> String {
    let mut text =
        format!("[{}]\narch={}\nfile={}\nsize={}\n", entry.name, entry.arch.architecture, entry.file, entry.size);
    for (lang, note) in &entry.notes {
        text += &format!("notes[{lang}]={}\n", note.replace('\n', "\n "));
    }
    text + "\n"
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes, true);
        let _ = parse(&bytes, false);
    }

    #[test]
    fn what_is_written_is_read(
        name in "[-A-Za-z0-9._]{1,20}",
        file in "[a-z0-9]{1,9}(/[a-z0-9.-]{3,9}){0,3}",
        size in 0_u64..1 << 40,
        note in "[ -~]{0,9}(\n[ -~\t]{0,9}){0,3}",
    ) {
        proptest::prop_assume!(!file.contains("..") && !note.contains("\n#"));
        let text = format!("[{name}]\narch=s390x\nfile={file}\nsize={size}\nnotes[x]={}\n", note.replace('\n', "\n "));
        let entry = only(&text);
        proptest::prop_assert_eq!(&entry.notes["x"], &note);
        proptest::prop_assert_eq!(only(&written(&entry)), entry);
    }
}
