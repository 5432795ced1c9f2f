//! A pause whose write comes late.

use std::path::PathBuf;

use putex::core::{Revision, Written};
use putex::store::dir::DirStore;
use putex::store::{Bucket as _, Content, Expected, FirstKeys, OpenMode, Stays};
use putex::sys;

use super::Site;
use crate::support::clock::PATIENCE;

/// Regression: the pause was stored after `putex resume`, which had said that no pause stands, and
/// was observed.
#[test]
fn a_pause_whose_write_arrives_after_the_end_is_not_stored() {
    let site = Site::in_directory();
    let _agent = site.active_agent("h1", &["--key", "web"]);
    let mut bucket = DirStore::new(PathBuf::from(&site.store[1]), "putex");
    let (key, by) = ("putex.pause.web", || sys::now().after(PATIENCE));
    let first = FirstKeys { subscribed: &[], read: &[key] };
    bucket.open(OpenMode::ReadOnly, first, by()).expect("it opens");
    // No entry, and the end of a pause.
    for _ in 0..2 {
        let standing = bucket.get(key, by()).expect("an answer");
        let expected = standing.map_or(Revision(0), |entry| entry.revision);
        let resumed = site.run(&["resume", "web"]);
        assert_eq!((resumed.status, &*resumed.shown), (Some(0), "agents=1\n"), "{resumed:?}");
        assert_eq!(resumed.said, "putex: web: no pause stands\n");
        let headers = [("Putex-Life", "3600000"), ("Putex-Nonce", "7")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let pause = Content { headers, payload: Vec::new() };
        let written = bucket.write(key, Expected::Key(expected), &pause, Stays::Kept, by());
        assert!(matches!(written, Written::Moved(_)), "{written:?}");
    }
    assert_eq!(site.answer(&["paused", "web"]), Some(1));
}
