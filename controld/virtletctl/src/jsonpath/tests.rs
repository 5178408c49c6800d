use serde_json::json;

use super::*;

#[test]
fn templates_are_filled_as_by_kubectl() {
    let document = json!({ "items": [
        { "metadata": { "name": "web", "labels": { "a.b/c": "d" } }, "status": { "podIP": "10.1.0.1" }, "n": 1 },
        { "metadata": { "name": "db\u{1b}" }, "status": {}, "n": 2 },
    ] });
    for (template, wanted) in [
        ("{.items[*].metadata.name}", "web db\\u{1b}"),
        (".items[0].status.podIP", "10.1.0.1"),
        ("{$.items[-1].n}", "2"),
        ("{.items[0]['metadata'].labels.a\\.b/c}", "d"),
        ("{.items[0].metadata.labels['a\\.b/c']}", "d"),
        ("{range .items[*]}{.metadata.name}{\"\\t\"}{.n}{\"\\n\"}{end}", "web\t1\ndb\\u{1b}\t2\n"),
        ("names: {.items[*]['metadata']['name']}{'}'}", "names: web db\\u{1b}}"),
        ("{.items[0].metadata.labels}", "{\"a.b/c\":\"d\"}"),
        ("{.items[9].n}{.nothing}", ""),
        ("{.items[0].metadata.*}", "{\"a.b/c\":\"d\"} web"),
    ] {
        assert_eq!(template.parse::<JsonPath>().expect(template).render(&document), wanted, "{template}");
    }
}

#[test]
fn a_key_that_is_nowhere_is_found() {
    let document = json!({ "items": [{ "metadata": { "name": "web", "labels": { "a": "b" } }, "ready": [] }] });
    for (template, wanted) in [
        ("{.items[*].metadata.name}{.items[3].x}", None),
        ("{.items[*].metadata.labels.c}", None),
        ("{.items[*].ready[0].x}", None),
        ("{.items[*].spec.nodeName}", Some("spec")),
        ("{range .items[*]}{.metadata.uid}{end}", Some("uid")),
    ] {
        assert_eq!(template.parse::<JsonPath>().expect(template).lacks(&document), wanted, "{template}");
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    for text in [
        "",
        "{.a",
        "{range .a}",
        "{end}",
        "{.items[?(@.n==1)]}",
        "{.items[0:1]}",
        "{..name}",
        "{.a[}",
        "{a.b}",
        &"{range .a}".repeat(20),
    ] {
        text.parse::<JsonPath>().expect_err(text);
    }
}
