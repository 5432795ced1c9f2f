//! The store in a folder: the stories that every store must pass, and those that
//! only a disk can tell: killed writers, damaged files, full disks, wrong modes.

#![allow(clippy::wildcard_enum_match_arm)]

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::base::{Base, denied};
use crate::contract::{leased, open, plain, soon, stored};
use crate::support::clock::{PATIENCE, READ_MAX, until_true};
use crate::support::process::state_of;
use putex::core::event::{Event, Written};
use putex::core::record::{KeyValue, Revision};
use putex::core::seat::Seat;
use putex::store::dir::{DirStore, default_base};
use putex::store::{LockKey, StoreError, StoreErrorKind};
use putex::sys::{Waker, now};
use rustix::thread::gettid;

/// Returns why a store does not open.
fn unsafe_reason(store: &mut LockKey) -> String {
    let opened = store.open(soon());
    let Err(StoreError { kind: StoreErrorKind::Unsafe, text }) = &opened else {
        panic!("not unsafe but {opened:?}");
    };
    text.clone()
}

#[test]
fn a_folder_keeps_the_contract() {
    let base = Base::new();
    crate::contract::all(&|bucket| base.bucket(bucket), true);
}

#[test]
fn a_reader_never_sees_half_a_record() {
    let base = Base::new();
    let (mut writer, mut reader) = (base.open("web"), base.open("web"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = Revision(0);
            for nonce in 0..100 {
                at = stored(&mut writer, at, &leased(&"long ".repeat(2000), nonce, None));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut last = Revision(0);
        while !done.load(Ordering::Relaxed) {
            let key_state = reader.read(Seat::FIRST, soon()).expect("a whole record");
            assert!(key_state.revision >= last, "{} after {last}", key_state.revision);
            last = key_state.revision;
        }
    });
}

#[test]
fn a_damaged_record_is_an_error_of_its_key_alone() {
    let base = Base::new();
    let (mut web, mut db) = (base.open("web"), base.open("db"));
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    let at_db = stored(&mut db, Revision(0), &plain("alpha"));
    let whole = fs::read(base.file("web.key")).expect("the record");
    let mut changed = whole.clone();
    changed[20] ^= 1;
    for damage in [&whole[..whole.len() - 3], &changed, b"", b"alpha\n", &[0; 70_000]] {
        fs::write(base.file("web.key"), damage).expect("to damage it");
        let text = web.read(Seat::FIRST, soon()).expect_err("damaged");
        assert!(text.contains("web.key"), "{text}");
        assert_eq!(denied(web.write(Seat::FIRST, at, &plain("beta"), soon())), text);
        assert_eq!(denied(web.write(Seat::FIRST, Revision(0), &plain("beta"), soon())), text);
        assert_eq!(unsafe_reason(&mut base.store("web")), text);
        assert_eq!(fs::read(base.file("web.key")).expect("it is there"), damage);
        assert_eq!(db.read(Seat::FIRST, soon()).map(|key_state| key_state.revision), Ok(at_db));
    }
    stored(&mut db, at_db, &plain("beta"));
    fs::write(base.file("web.key"), &whole).expect("to mend it");
    stored(&mut web, at, &plain("beta"));
}

#[test]
fn without_its_sequence_a_bucket_is_not_written() {
    let base = Base::new();
    let mut web = base.open("web");
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    let old = fs::read(base.file("sequence")).expect("the sequence");
    let at = stored(&mut web, at, &plain("alpha"));
    let whole = fs::read(base.file("sequence")).expect("the sequence");
    let refused = |web: &mut LockKey, why: &str| {
        let text = denied(web.write(Seat::FIRST, at, &plain("beta"), soon()));
        assert!(text.contains("sequence") && text.contains(why), "{text}");
        assert_eq!(unsafe_reason(&mut base.store("web")), text);
    };
    fs::remove_file(base.file("sequence")).expect("to remove it");
    refused(&mut web, "missing");
    fs::write(base.file("sequence"), b"putex 2\nsequence").expect("to damage it");
    refused(&mut web, "cut off");
    fs::write(base.file("sequence"), old).expect("to set it back");
    refused(&mut web, "before revision 2");
    fs::write(base.file("sequence"), whole).expect("to mend it");
    stored(&mut web, at, &plain("beta"));
}

#[test]
fn revisions_go_on_after_a_record_was_removed() {
    let base = Base::new();
    let waker = Waker::new().expect("a waker");
    let mut web = base.open("web");
    let last = stored(&mut web, Revision(0), &plain("alpha"));
    fs::remove_file(base.file("web.key")).expect("to remove it");
    // There is no revision for a hint.
    assert_eq!(web.watch(waker.as_fd(), Some(soon())), Ok(Some(Event::Hint(Seat::FIRST, None))));
    let key_state = web.read(Seat::FIRST, soon()).expect("it reads");
    assert_eq!((key_state.revision, key_state.value), (Revision(0), KeyValue::Absent));
    let (_, opened) = open(&|bucket| base.bucket(bucket), "b", "web");
    assert_eq!(opened.bucket.age, None, "it may have been there");
    let moved = Written::Moved(Some(Revision(0)));
    assert_eq!(web.write(Seat::FIRST, last, &plain("beta"), soon()), moved);
    assert!(stored(&mut web, Revision(0), &plain("beta")) > last);
}

#[test]
fn ones_own_writes_do_not_wake() {
    let base = Base::new();
    let waker = Waker::new().expect("a waker");
    let mut web = base.open("web");
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    stored(&mut web, at, &plain("alpha"));
    let deadline = now().after(Duration::from_millis(50));
    assert_eq!(web.watch(waker.as_fd(), Some(deadline)), Ok(None));
}

#[test]
fn a_full_disk_denies_the_write_and_keeps_the_record() {
    let base = Base::new();
    let options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs"];
    let mut mount = Command::new("mount");
    let mounted = mount.args(options).arg(&*base.0).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: may not mount a file system to fill");
        return;
    }
    let result = thread::scope(|scope| scope.spawn(|| fill_and_write(&base)).join());
    let unmounted = Command::new("umount").arg(&*base.0).status();
    assert!(unmounted.expect("umount").success());
    result.expect("on the full disk");
}

fn fill_and_write(base: &Base) {
    let mut web = base.open("web");
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    // Room for the sequence and not for the record, then for neither.
    let text = denied(web.write(Seat::FIRST, at, &plain(&"x".repeat(60_000)), soon()));
    assert!(text.contains("web.key") && text.contains("No space left"), "{text}");
    let mut filler = File::create(base.0.join("filler")).expect("a file");
    while filler.write_all(&[0; 512]).is_ok() {}
    let text = denied(web.write(Seat::FIRST, at, &plain("beta"), soon()));
    assert!(text.contains("No space left"), "{text}");
    let key_state = base.open("web").read(Seat::FIRST, soon()).expect("it reads");
    assert_eq!((key_state.revision, key_state.value), (at, KeyValue::Record(plain("alpha"))));
    filler.set_len(0).expect("to make room");
    stored(&mut web, at, &plain("beta"));
}

#[test]
fn a_record_that_could_not_be_read_again_is_denied() {
    let base = Base::new();
    let mut web = base.open("web");
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    let text = denied(web.write(Seat::FIRST, at, &plain(&"x".repeat(70_000)), soon()));
    assert!(text.contains("more than the maximum of 65536"), "{text}");
    stored(&mut web, at, &plain("beta"));
}

/// A user who could only read it kept its lock from everybody by flock(1).
#[test]
fn a_folder_that_others_can_open_is_refused() {
    let base = Base::new();
    drop(base.open("web"));
    let folder = base.0.join("b");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&folder) & 0o7777, 0o700);
    let open =
        [(0o770, "0770"), (0o702, "0702"), (0o1777, "1777"), (0o755, "0755"), (0o701, "0701")];
    for (bits, shown) in open {
        fs::set_permissions(&folder, Permissions::from_mode(bits)).expect("to change it");
        let text = unsafe_reason(&mut base.store("web"));
        assert!(text.contains(shown) && text.contains("/b "), "{text}");
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("to change it");
    drop(base.open("web"));
    fs::set_permissions(&*base.0, Permissions::from_mode(0o777)).expect("to change it");
    assert!(unsafe_reason(&mut base.store("web")).contains("0777"));
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&*base.0, Permissions::from_mode(0o700)).expect("to change it");
        std::os::unix::fs::chown(&folder, Some(1), None).expect("to give it away");
        assert!(unsafe_reason(&mut base.store("web")).contains("belongs to user 1"));
    }
}

#[test]
fn a_link_or_a_file_in_place_of_the_folder_is_refused() {
    let (base, elsewhere) = (Base::new(), Base::new());
    symlink(&*elsewhere.0, base.0.join("b")).expect("a link");
    assert!(unsafe_reason(&mut base.store("web")).contains("Not a directory"));
    assert_eq!(fs::read_dir(&*elsewhere.0).expect("it is there").count(), 0);
    fs::remove_file(base.0.join("b")).expect("to remove it");
    fs::write(base.0.join("b"), "").expect("a file");
    assert!(unsafe_reason(&mut base.store("web")).contains("Not a directory"));
    let below =
        &mut LockKey::new(Box::new(DirStore::new(base.0.join("b"), "b")), "web", 1, READ_MAX);
    assert!(unsafe_reason(below).contains("/b"));
}

#[test]
fn names_that_lead_elsewhere_are_refused_or_escaped() {
    let base = Base::new();
    for bucket in ["", ".", "..", "a/b", "/", "ä"] {
        unsafe_reason(&mut base.store_of(bucket, "web"));
    }
    unsafe_reason(&mut base.store(&"k".repeat(250)));
    let mut store = base.open("../../web");
    stored(&mut store, Revision(0), &plain("alpha"));
    assert!(base.file("..%2F..%2Fweb.key").exists());
}

#[test]
fn a_folder_that_goes_is_noticed_and_not_made_again() {
    type Harm = fn(&Base);
    let harms: [(&str, Harm); 4] = [
        ("removed", |base| fs::remove_dir_all(base.0.join("b")).expect("it goes")),
        ("moved", |base| fs::rename(base.0.join("b"), base.0.join("c")).expect("it moves")),
        ("replaced", |base| {
            fs::rename(base.0.join("b"), base.0.join("c")).expect("it moves");
            drop(base.open("web"));
        }),
        ("another epoch", |base| {
            let other = Base::new();
            drop(other.open("web"));
            fs::copy(other.file("epoch"), base.file("other")).expect("a copy");
            fs::rename(base.file("other"), base.file("epoch")).expect("it is there");
        }),
    ];
    for (name, harm) in harms {
        let waker = Waker::new().expect("a waker");
        let base = Base::new();
        let (mut asleep, mut web) = (base.open("web"), base.open("web"));
        let at = stored(&mut web, Revision(0), &plain("alpha"));
        asleep.read(Seat::FIRST, soon()).expect("it reads");
        let watcher = AtomicU32::new(0);
        let watched = thread::scope(|scope| {
            // The record may go first, which is a hint, and a true one. The pause is read before.
            let watch = scope.spawn(|| {
                watcher.store(gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
                loop {
                    let watched = asleep.watch(waker.as_fd(), Some(soon()));
                    if !matches!(watched, Ok(Some(Event::Hint(..) | Event::PauseRead(_)))) {
                        break watched;
                    }
                }
            });
            let sleeps = || state_of(watcher.load(Ordering::Relaxed)) == Some('S');
            until_true("that it watches", sleeps);
            harm(&base);
            watch.join().expect("the watcher")
        });
        assert!(watched.is_err(), "{name}: {watched:?}");
        denied(web.write(Seat::FIRST, at, &plain("beta"), soon()));
        web.read(Seat::FIRST, soon()).expect_err(name);
        let watched = web.watch(waker.as_fd(), Some(soon()));
        assert!(watched.is_err(), "{name}: {watched:?}");
        if matches!(name, "removed" | "moved") {
            assert!(!base.0.join("b").exists(), "{name}");
        }
        let opened = web.open(soon()).expect("it opens again");
        assert_eq!(
            opened.key_states[0].value == KeyValue::Absent,
            name != "another epoch",
            "{name}"
        );
        let at = opened.key_states[0].revision;
        stored(&mut web, at, &plain("beta"));
    }
}

#[test]
fn an_epoch_missing_beside_records_is_not_made_anew() {
    let base = Base::new();
    let mut web = base.open("web");
    stored(&mut web, Revision(0), &plain("alpha"));
    fs::remove_file(base.file("epoch")).expect("to remove it");
    assert!(unsafe_reason(&mut web).contains("epoch"));
    assert!(!base.file("epoch").exists());
}

/// A key without files could be one whose record somebody removed while its service runs.
#[test]
fn only_the_first_key_of_a_bucket_is_known_to_be_new() {
    let base = Base::new();
    let mut web = base.open("web");
    stored(&mut web, Revision(0), &plain("alpha"));
    let (_, other) = open(&|bucket| base.bucket(bucket), "b", "other");
    assert_eq!(other.bucket.age, None);
}

#[test]
fn a_bucket_of_an_earlier_boot_is_as_old_as_can_be() {
    let base = Base::new();
    let (mut web, before) = open(&|bucket| base.bucket(bucket), "b", "web");
    assert!(before.bucket.age.is_some_and(|age| age < PATIENCE));
    let boot = before.bucket.id.created.rsplit(' ').next().expect("a boot").to_owned();
    let text = fs::read_to_string(base.file("epoch")).expect("the epoch");
    let body = text.rsplit_once("\nend ").expect("its end").0.replace(&boot, "another");
    let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    fs::write(base.file("epoch"), format!("{body}\nend {sum:016x}\n")).expect("to write it");
    let after = web.open(soon()).expect("it opens");
    assert_eq!(after.bucket.age, Some(Duration::MAX));
    assert_ne!(after.bucket.id, before.bucket.id);
}

#[test]
fn the_base_follows_the_user() {
    let base =
        |uid, runtime: Option<&str>| default_base(uid, runtime.map(OsStr::new), Path::new("/tmp"));
    assert_eq!(base(0, Some("/run/user/0")), Path::new("/run/putex"));
    assert_eq!(base(7, Some("/run/user/7")), Path::new("/run/user/7/putex"));
    for unset in [None, Some(""), Some("run")] {
        assert_eq!(base(7, unset), Path::new("/tmp/putex-7"));
    }
}
