use proptest::prelude::*;
use proptest::string::string_regex;
use regex::Regex;

use super::*;

/// But for base64's: which bits its last digit may have no pattern says.
const FORMS: [&Form; 16] = [
    &LABEL, &SUBDOMAIN, &TEXT, &LINES, &NAME, &SERIAL, &IMAGE, &MAC, &UUID, &PCI, &QUALIFIED, &CPU_MODEL, &MACHINE,
    &PAGE_SIZE, &IPV4, &TIMEZONE,
];

fn pattern(form: &Form) -> Regex {
    Regex::new(&format!("^({})$", form.pattern)).expect(form.what)
}

#[test]
fn a_pattern_takes_what_its_form_takes() {
    let samples = [
        "a",
        "a1",
        "a-b",
        "A_b.c+d",
        "a.b-c.d",
        "ns/name",
        "ns/name.example",
        "x/y:1",
        "quay.io/a/b@sha256:00",
        "02:00:00:12:34:56",
        "02-00-00-12-34-5e",
        "53008994-44c0-4017-ad44-9c49758083da",
        "0000:00:05.0",
        "FFFF:ff:1f.7",
        "host-model",
        "q35",
        "pc-q35-9.2",
        "virt",
        "pc-",
        "2Mi",
        "1Gi",
        "10.0.0.1",
        "255.255.255.255",
        "Europe/Rome",
        "Etc/GMT+1",
        "S 1",
        "ä",
        "a\nb",
    ];
    for form in FORMS {
        let taken: Vec<&str> = samples.into_iter().filter(|text| text.len() <= form.most && (form.is)(text)).collect();
        assert!(!taken.is_empty(), "no sample of {}", form.what);
        for text in taken {
            assert!(pattern(form).is_match(text), "{text:?} is {}", form.what);
        }
    }
    assert!(pattern(&BASE64).is_match("I2Nsb3VkLWNvbmZpZwo=") && pattern(&BASE64).is_match("Mg=="));
}

proptest! {
    #[test]
    fn a_pattern_takes_nothing_else(
        (nth, text) in (0..FORMS.len()).prop_flat_map(|nth| (Just(nth), string_regex(FORMS[nth].pattern).expect("a pattern")))
    ) {
        let form = FORMS[nth];
        // How long a name without a namespace may be the pattern of one with or without does not say.
        prop_assume!(text.len() <= form.most.min(SUBDOMAIN.most) && !text.is_empty());
        prop_assert!((form.is)(&text), "{:?} is not {}", text, form.what);
    }
}
