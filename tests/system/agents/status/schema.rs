//! The part of JSON Schema that this suite needs: types, members, items and enumerations.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns every fault of a value, with its path. A member that the schema does not know is one
/// too, and a member of the schema that may be absent.
pub(crate) fn faults(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !types(schema).any(|name| is_of_type(value, name)) {
        found.push(format!("{path}: {value} is not {}", schema["type"]));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        found.push(format!("{path}: {value} is none of {values:?}"));
    }
    if let Some(object) = value.as_object() {
        let names = |names: &Value| -> BTreeSet<String> {
            let names = names.as_array().into_iter().flatten();
            names.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let required = names(&schema["required"]);
        let known: BTreeSet<String> =
            schema["properties"].as_object().into_iter().flatten().map(|it| it.0.clone()).collect();
        let present: BTreeSet<String> = object.keys().cloned().collect();
        if required != known || present != known {
            found.push(format!("{path}: {present:?}, required {required:?} of {known:?}"));
        }
        for (name, value) in object {
            let path = format!("{path}.{name}");
            found.extend(faults(&schema["properties"][name], value, &path));
        }
    }
    for (at, value) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(faults(&schema["items"], value, &format!("{path}[{at}]")));
    }
    found
}

fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let several = schema["type"].as_array().into_iter().flatten();
    several.chain(Some(&schema["type"])).filter_map(Value::as_str)
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}: a type that this suite does not know"),
    }
}
