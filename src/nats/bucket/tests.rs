//! Every configuration is one that a server gave, with one field changed.

use super::*;

const V15: &str = include_str!("../../../tests/data/nats-2.15.1/info.json");
const V10: &str = include_str!("../../../tests/data/nats-2.10.26/info.json");
const OLD_V15: &str = include_str!("../../../tests/data/nats-2.15.1/info_0.2.0.json");
const OLD_V10: &str = include_str!("../../../tests/data/nats-2.10.26/info_0.2.0.json");
const CLI_V15: &str = include_str!("../../../tests/data/nats-2.15.1/info_cli.json");

fn config(info: &str) -> Value {
    let value: Value = serde_json::from_str(info).expect("recorded JSON");
    value["config"].clone()
}

fn judge(bucket: &str, config: &Value) -> Result<Vec<String>, String> {
    check(bucket, config, false).map(|found| found.remarks)
}

#[test]
fn a_bucket_of_our_own_making_lacks_nothing_on_both_servers() {
    assert_eq!(judge("locks", &config(V15)), Ok(vec![]));
    assert_eq!(judge("locks", &config(V10)), Ok(vec![]));
}

#[test]
fn what_is_asked_for_passes_the_check_itself() {
    let created: Value = serde_json::from_str(&create("b-1", 3)).expect("JSON");
    assert_eq!(judge("b-1", &created), Ok(vec![]));
    assert_eq!(created["num_replicas"], 3);
    assert_eq!(created["storage"], "file");
    assert_eq!(created["allow_msg_ttl"], true);
}

#[test]
fn a_bucket_of_putex_0_2_0_is_taken_with_remarks() {
    let expected = [
        "bucket old: allow_rollup_hdrs true: a client that may write one key can wipe the bucket",
        "bucket old: deny_purge false: a client that may purge the stream can drop a held lock",
        "bucket old: no republish to putex.hint.old.>: changes are noticed by reading every R only",
    ];
    for info in [OLD_V15, OLD_V10] {
        assert_eq!(judge("old", &config(info)), Ok(expected.map(str::to_owned).to_vec()));
    }
    let cli = judge("cli", &config(CLI_V15)).expect("safe");
    assert_eq!(cli.len(), 3, "{cli:?}");
}

#[test]
fn every_unsafe_field_is_refused_by_its_name() {
    let cases = [
        ("name", json!("KV_other"), "name KV_other"),
        ("mirror", json!({"name": "KV_x"}), "mirror"),
        ("sources", json!([{"name": "KV_x"}]), "sources"),
        ("subjects", json!(["$KV.locks.>", "x.y"]), "subjects $KV.locks.> x.y"),
        ("subjects", json!(["$KV.locks.web"]), "subjects $KV.locks.web"),
        ("subjects", Value::Null, "subjects none"),
        ("subject_transform", json!({"src": "a", "dest": "b"}), "subject_transform"),
        ("republish", json!({"src": ">", "dest": "$KV.x.>"}), "republish to $KV.x.>"),
        ("republish", json!({"src": ">", "dest": "$JS.API.>"}), "republish to $JS.API.>"),
        ("republish", json!({"src": ">", "dest": ">"}), "republish to >"),
        ("storage", json!("memory"), "storage memory"),
        ("storage", json!("tape"), "storage tape"),
        ("retention", json!("workqueue"), "retention workqueue"),
        ("retention", json!("interest"), "retention interest"),
        ("max_age", json!(10_000_000_000u64), "max_age 10000000000"),
        ("subject_delete_marker_ttl", json!(1_000_000_000), "subject_delete_marker_ttl 1000000000"),
        ("persist_mode", json!("async"), "persist_mode async"),
        ("no_ack", json!(true), "no_ack true"),
        ("sealed", json!(true), "sealed true"),
        ("discard_new_per_subject", json!(true), "discard_new_per_subject true"),
        ("allow_msg_counter", json!(true), "allow_msg_counter true"),
        ("max_msg_size", json!(64), "max_msg_size 64"),
    ];
    for (field, value, reason) in cases {
        let mut config = config(V15);
        config[field] = value.clone();
        let refused = judge("locks", &config).expect_err(field);
        let start = format!("bucket locks: {reason}: ");
        assert!(refused.starts_with(&start) || field == "mirror", "{field} {value}: {refused}");
        assert!(refused.contains(reason), "{field} {value}: {refused}");
        assert!(!refused.ends_with('.') && !refused.contains('\n'), "{refused}");
        assert_eq!(refused.matches("; ").count(), 1, "only this fault: {refused}");
    }
}

#[test]
fn dropping_old_messages_is_refused_only_where_a_limit_can_make_it_happen() {
    for limit in ["max_msgs", "max_bytes"] {
        let mut config = config(V15);
        config["discard"] = json!("old");
        assert_eq!(judge("locks", &config), Ok(vec![]));
        config[limit] = json!(1000);
        let refused = judge("locks", &config).expect_err(limit);
        assert!(refused.contains(&format!("discard old with {limit} 1000")), "{refused}");
        config["discard"] = json!("new");
        assert_eq!(judge("locks", &config), Ok(vec![]));
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let mut config = config(V15);
    config["no_ack"] = json!(true);
    config["max_age"] = json!(1_000_000);
    let refused = judge("locks", &config).expect_err("unsafe");
    assert!(refused.contains("no_ack") && refused.contains("max_age 1000000"), "{refused}");
}

#[test]
fn memory_is_taken_when_allowed_and_remarked_upon() {
    let mut value = config(V15);
    value["storage"] = json!("memory");
    let remarks = check("locks", &value, true).expect("allowed").remarks;
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("storage memory"), "{remarks:?}");
}

#[test]
fn what_is_not_understood_is_not_trusted() {
    let kinds = [
        ("storage", Value::Null),
        ("retention", Value::Null),
        ("num_replicas", Value::Null),
        ("max_age", json!("0")),
        ("sealed", json!("no")),
        ("subjects", json!("$KV.locks.>")),
        ("republish", json!({"src": ">"})),
        ("persist_mode", json!(1)),
        ("max_msg_size", json!("64")),
        ("num_replicas", json!(-1)),
        ("republish", json!(true)),
        ("mirror", json!(false)),
        ("sources", json!({})),
    ];
    for (field, value) in kinds {
        let mut config = config(V15);
        config[field] = value;
        let refused = judge("locks", &config).expect_err(field);
        assert!(refused.contains(field), "{field}: {refused}");
    }
    assert!(judge("locks", &Value::Null).is_err());
    for discard in [json!("old"), json!("other"), Value::Null] {
        for limit in [json!("9"), json!(1e3), json!(u64::MAX)] {
            let mut config = config(V15);
            (config["discard"], config["max_bytes"]) = (discard.clone(), limit.clone());
            let refused = judge("locks", &config).expect_err("a limit of another kind");
            assert!(refused.contains("with max_bytes"), "{refused}");
        }
    }
    let shortcomings = [
        ("max_msgs_per_subject", json!("1")),
        ("deny_delete", json!(1)),
        ("deny_purge", json!("true")),
        ("allow_rollup_hdrs", json!(0)),
    ];
    for (field, value) in shortcomings {
        let mut config = config(V15);
        config[field] = value;
        let remarks = judge("locks", &config).expect(field);
        assert!(remarks.len() == 1 && remarks[0].contains(field), "{remarks:?}");
    }
}

#[test]
fn an_absent_field_counts_as_its_default() {
    let optional = [
        "mirror",
        "sources",
        "subject_transform",
        "max_age",
        "allow_msg_ttl",
        "subject_delete_marker_ttl",
        "persist_mode",
        "no_ack",
        "sealed",
        "discard_new_per_subject",
        "allow_msg_counter",
        "max_msg_size",
        "max_msgs",
        "max_bytes",
        "allow_rollup_hdrs",
    ];
    for empty in [false, true] {
        let mut config = config(V15);
        let fields = config.as_object_mut().expect("an object");
        for field in optional {
            fields.remove(field);
            if empty {
                fields.insert(field.to_owned(), Value::Null);
            }
        }
        assert_eq!(judge("locks", &config), Ok(vec![]));
    }
    let mut config = config(V15);
    for field in ["deny_purge", "deny_delete", "max_msgs_per_subject", "republish"] {
        config[field] = Value::Null;
    }
    assert_eq!(judge("locks", &config).expect("safe").len(), 4);
}

#[test]
fn a_version_is_since_another_if_it_is_a_release_from_it_on_or_later() {
    for good in ["2.11.0", "2.11.3", "v2.15.1", "3.0.0", "2.12.0-RC.1", "2.100.0"] {
        assert!(is_since(good, LOCKS_SINCE), "{good}");
    }
    for bad in [
        "2.10.99", "2.9.25", "1.99.99", "2.11.0-RC.1", "", "2.11", "2.11.x", "latest", "2.11.0.1",
        "2..21",
    ] {
        assert!(!is_since(bad, LOCKS_SINCE), "{bad}");
    }
}

#[test]
fn the_level_of_the_api_is_that_of_the_metadata() {
    let level = |value: Value| {
        let mut config = config(V15);
        config["metadata"] = value;
        check("locks", &config, false).map(|found| found.level)
    };
    for (metadata, expected) in [
        (Value::Null, 0),
        (json!({}), 0),
        (json!({"_nats.level": "0"}), 0),
        (json!({"_nats.level": "5"}), 5),
    ] {
        assert_eq!(level(metadata), Ok(expected));
    }
    for damaged in [json!(1), json!(""), json!("1x"), json!("-1"), json!([])] {
        let metadata = json!({"_nats.level": damaged});
        assert!(level(metadata).is_err(), "{damaged}");
    }
}

#[test]
fn a_history_is_remarked_upon() {
    for (history, text) in [(5, "max_msgs_per_subject 5"), (-1, "max_msgs_per_subject -1")] {
        let mut config = config(V15);
        config["max_msgs_per_subject"] = json!(history);
        let remarks = judge("locks", &config).expect("safe");
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].contains(text), "{remarks:?}");
    }
}

#[test]
fn what_a_server_says_of_a_bucket_is_told_in_one_line() {
    let named = |text: &str| json!({"name": text, "subjects": [text]});
    for wrong in ["a\nputex: web: forged", "\u{1b}[2J", "\u{85}"] {
        let mut value = named(wrong);
        for (name, text) in [("retention", wrong), ("storage", wrong), ("discard", wrong)] {
            value[name] = json!(text);
        }
        value["num_replicas"] = json!(1);
        let refusal = judge("locks", &value).expect_err("it is not safe");
        assert!(!refusal.contains(char::is_control), "{refusal:?}");
    }
}
