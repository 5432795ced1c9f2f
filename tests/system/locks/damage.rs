//! A damaged file of locks grants nothing beside a holder.

use std::fs::{self, File};
use std::path::Path;

use crate::directory::pair;
use crate::site::{Site, in_directory};

/// Changes a byte of a file.
pub(crate) fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("it can be written");
}

/// Expects that nothing is granted and the line says why.
pub(crate) fn assert_refused(site: &Site, part: &str) {
    let run = site.run(&["-n", "y", "touch", "ran"]);
    assert_eq!(run.status, Some(78), "{}", run.said);
    assert!(run.said.contains(part) && run.said.lines().count() == 1, "{part}: {}", run.said);
}

#[test]
fn a_damaged_or_emptied_file_grants_nothing_beside_a_holder() {
    in_directory(|site| {
        let (holder, next) = pair(site);
        let path = site.lock_file();
        damage(&path, 33);
        let damaged = fs::read(&path).expect("a file");
        assert_refused(site, "store/putex/locks does not match its checksum");
        assert_eq!(fs::read(&path).expect("a file"), damaged);
        damage(&path, 33);
        // The record of the holder.
        damage(&path, 256 + 30);
        let other = site.run(&["-n", "y", "true"]);
        assert_eq!(other.status, Some(75), "{}", other.said);
        assert!(other.said.contains("its record is damaged"), "{}", other.said);
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_len(0).expect("it can be written");
        assert_refused(site, "was emptied while locks are held");
        holder.end();
        next.begun();
        next.end();
        file.set_len(100).expect("it can be written");
        assert_eq!(site.run(&["-n", "y", "true"]).status, Some(0));
        file.set_len(100).expect("it can be written");
        assert_refused(site, "is cut off");
        fs::write(&path, "something else").expect("it can be written");
        assert_refused(site, "is ");
    });
}
