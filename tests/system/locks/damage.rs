//! A damaged file in a directory of locks grants nothing beside a holder.

use std::fs;
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
fn a_damaged_file_grants_nothing_beside_a_holder() {
    in_directory(|site| {
        let (holder, next) = pair(site);
        for (name, says) in [
            ("sequence", "store/putex/sequence does not match its checksum"),
            ("epoch", "store/putex/epoch does not match its checksum"),
        ] {
            let path = site.folder().join(name);
            damage(&path, 33);
            let damaged = fs::read(&path).expect("a file");
            assert_refused(site, says);
            assert_eq!(fs::read(&path).expect("a file"), damaged);
            damage(&path, 33);
        }
        let sequence = site.folder().join("sequence");
        let whole = fs::read(&sequence).expect("a file");
        fs::write(&sequence, "").expect("it can be written");
        assert_refused(site, "store/putex/sequence is cut off");
        fs::remove_file(&sequence).expect("a file");
        assert_refused(site, "store/putex/sequence is missing");
        fs::write(&sequence, whole).expect("it can be written");
        // The ticket of the holder: others are granted other names.
        let ticket = site.tickets()[0].clone();
        damage(&ticket, 33);
        let same = site.run(&["-n", "x/y", "true"]);
        assert_eq!(same.status, Some(78), "{}", same.said);
        assert!(same.said.contains("held does not match its checksum"), "{}", same.said);
        assert_eq!(site.run(&["-n", "y", "true"]).status, Some(0));
        damage(&ticket, 33);
        // A folder that has the name of a ticket.
        let place = site.folder().join("lock.y.1000.held");
        fs::create_dir(&place).expect("a folder");
        assert_refused(site, "lock.y.1000.held: Is a directory");
        fs::remove_dir(&place).expect("it is empty");
        holder.end();
        next.begun();
        next.end();
    });
}

/// Each would be granted what the other holds.
#[test]
fn a_directory_of_another_version_is_refused() {
    in_directory(|site| {
        assert_eq!(site.run(&["-n", "y", "true"]).status, Some(0));
        let path = site.folder().join("epoch");
        let whole = fs::read_to_string(&path).expect("a file");
        let (body, _) = whole.rsplit_once("\nend ").expect("an end line");
        let body = body.replacen("putex 2\n", "putex 1\n", 1);
        let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        fs::write(&path, format!("{body}\nend {sum:016x}\n")).expect("it can be written");
        assert_refused(site, "store/putex/epoch is not of the format putex 2: another version");
    });
}
