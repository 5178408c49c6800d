//! Virtlet's rule of merging YAML (its `utils/merge.go`, less its fault: a list of the user's and one that it made itself were of
//! different types to it, and the user's was lost). Maps recurse, lists are appended, and of anything else the later one wins.

use serde_json::map::Entry;
use serde_json::{Map, Value};

/// `top` on `base`. Items of lists stay what they are, and those of `base` come first.
#[must_use]
pub fn merge(mut base: Map<String, Value>, top: Map<String, Value>) -> Map<String, Value> {
    for (key, later) in top {
        match base.entry(key) {
            Entry::Vacant(place) => drop(place.insert(later)),
            Entry::Occupied(mut place) => {
                let earlier = std::mem::take(place.get_mut());
                place.insert(merge_values(earlier, later));
            }
        }
    }
    base
}

fn merge_values(base: Value, top: Value) -> Value {
    match (base, top) {
        (Value::Object(base), Value::Object(top)) => Value::Object(merge(base, top)),
        (Value::Array(mut base), Value::Array(top)) => {
            base.extend(top);
            Value::Array(base)
        }
        (_, later) => later,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { unreachable!("a map") };
        map
    }

    #[test]
    fn each_rule() {
        for (base, top, merged) in [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": {"x": 1, "y": 1}}), json!({"a": {"y": 2}}), json!({"a": {"x": 1, "y": 2}})),
            (json!({"a": [1, [2]]}), json!({"a": [[2], "1"]}), json!({"a": [1, [2], [2], "1"]})),
            (json!({"runcmd": [["ls", "-l"]]}), json!({"runcmd": ["ls"]}), json!({"runcmd": [["ls", "-l"], "ls"]})),
            (json!({"a": "x"}), json!({"a": true}), json!({"a": true})),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": null})),
            (json!({"a": null}), json!({"a": [1]}), json!({"a": [1]})),
        ] {
            assert_eq!(merge(map(base), map(top)), map(merged));
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                btree_map("[a-c]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn any_map() -> impl Strategy<Value = Map<String, Value>> {
        btree_map("[a-d]", any_value(), 0..5).prop_map(|map| map.into_iter().collect())
    }

    /// How many items the lists have that no other type lies on.
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.len(),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn nothing_is_neutral_and_no_key_is_lost(base in any_map(), top in any_map()) {
            prop_assert_eq!(merge(base.clone(), Map::new()), base.clone());
            prop_assert_eq!(merge(Map::new(), top.clone()), top.clone());
            let merged = merge(base.clone(), top.clone());
            prop_assert!(base.keys().chain(top.keys()).all(|key| merged.contains_key(key)));
            prop_assert!(merged.keys().all(|key| base.contains_key(key) || top.contains_key(key)));
            for (key, value) in &merged {
                match (base.get(key), top.get(key)) {
                    (Some(Value::Array(first)), Some(Value::Array(second))) => {
                        prop_assert_eq!(count(value), first.len() + second.len());
                        prop_assert!(value.as_array().is_some_and(|all| all.starts_with(first) && all.ends_with(second)));
                    }
                    (Some(Value::Object(_)), Some(Value::Object(_))) => prop_assert!(value.is_object()),
                    (_, Some(later)) => prop_assert_eq!(value, later),
                    (earlier, None) => prop_assert_eq!(Some(value), earlier),
                }
            }
        }
    }
}
