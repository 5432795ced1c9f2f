//! The cases of the tests of FLoM for names that are paths.

use crate::site::on_both_stores;

#[test]
fn flom_child_parent_and_grandparent_are_served_in_order_both_ways() {
    on_both_stores(|site| {
        let mut ids = Vec::new();
        for (way, names) in [("up", ["a/b/c", "a/b", "a"]), ("down", ["a", "a/b", "a/b/c"])] {
            let own: Vec<String> = (1..4).map(|number| format!("{way}{number}")).collect();
            let first = site.lock(&own[0], &[names[0]]);
            first.begun();
            let second = site.lock(&own[1], &[names[1]]);
            second.waits_behind(1);
            let third = site.lock(&own[2], &[names[2]]);
            third.waits_behind(2);
            first.end();
            second.begun();
            assert!(third.held().is_none());
            second.end();
            third.begun();
            third.end();
            ids.extend(own);
        }
        assert_eq!(site.order(), ids);
    });
}
