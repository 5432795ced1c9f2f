//! Files: those of the directory store, and the one of an agent's life.

use std::cell::OnceCell;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Noise, printable, record};
use crate::agent::life as lives;
use crate::core::event::{Notice, Written};
use crate::core::record::{KeyState, KeyValue, Lease, Record, Revision};
use crate::store::dir::DirStore;
use crate::store::dir::text::{self, Names};
use crate::store::{OpenError, Store};
use crate::sys;

/// A file of the directory store, whole or its body alone: it is accepted in one
/// writing only, a damaged one never, and what is read can be written and is read
/// the same. As a key, it has files of its own.
pub fn folder(data: &[u8]) -> bool {
    let unframed = text::unframe(data);
    if let Ok(body) = &unframed {
        assert_eq!(text::frame(body).as_bytes(), data, "another writing");
        says(body);
    }
    let Ok(body) = str::from_utf8(data) else {
        return false;
    };
    let said = says(body);
    let mut content = text::frame(body).into_bytes();
    assert_eq!(text::unframe(&content).as_deref(), Ok(body));
    let mut noise = Noise::of(data);
    let at = noise.below(content.len());
    assert!(text::unframe(&content[..at]).is_err(), "cut off at {at}");
    content[at] ^= 1 << noise.below(8);
    assert!(text::unframe(&content).is_err(), "damaged at {at}");
    named(body);
    said || unframed.is_ok()
}

/// A body that may be a record, a notice or a number; returns whether it is one.
fn says(body: &str) -> bool {
    let mut known = false;
    for name in ["sequence", "first"] {
        if let Some(number) = text::parse_number(name, body) {
            let plain = format!("{name} {number}");
            assert_eq!(text::parse_number(name, &plain), Some(number));
            known = true;
        }
    }
    if let Some((revision, record)) = text::decode_record(body) {
        survives(revision, &record);
        known = true;
    }
    let lease = Some(record::invented(body.as_bytes()));
    let token = body.to_owned();
    survives(Revision(7), &Record { token, lease });
    if let Some(notice) = text::decode_notice(body) {
        let expected = Notice {
            incarnation: printable(&notice.incarnation),
            host: printable(&notice.host),
            token: notice.token.clone(),
        };
        let again = text::decode_notice(&text::encode_notice(&notice));
        assert_eq!(again, Some(expected));
        known = true;
    }
    known
}

fn survives(revision: Revision, record: &Record) {
    let expected = plain(record);
    let again = text::decode_record(&text::encode_record(revision, record));
    assert_eq!(again, Some((revision, expected)));
}

/// A record without what cannot stand in a line.
fn plain(record: &Record) -> Record {
    let lease = record.lease.clone().map(|lease| Lease {
        host: printable(&lease.host),
        boot: printable(&lease.boot),
        ..lease
    });
    let token = record.token.clone();
    Record { token, lease }
}

/// A key can be told from the names of its files, so that no two keys share one.
fn named(key: &str) {
    let names = Names::new(key);
    let ends = [
        (&names.record, text::RECORD_SUFFIX),
        (&names.first, ".first"),
    ];
    for (name, end) in ends.into_iter().chain([(&names.notice, ".twin")]) {
        let safe = name.strip_suffix(end).expect("its own end");
        assert!(name.len() <= names.longest().len());
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        );
        assert_eq!(unescape(safe).as_deref(), Some(key.as_bytes()));
    }
}

fn unescape(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                (
                    u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?,
                    after,
                )
            }
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(bytes)
}

/// The names of a bucket's files, in the order of their bodies.
const FILES: [&str; 5] = ["epoch", "sequence", "k.key", "k.first", "new"];

/// Bodies of the files of a bucket, with a byte 30 between; one that begins with `!`
/// is the whole file, as it is, and a blank one is none. Whatever stands there: a
/// bucket is refused in one line, or it counts on from its highest number, with
/// compare-and-set.
pub fn bucket(data: &[u8]) -> bool {
    let here = Bucket::here();
    here.fill(data);
    let soon = || sys::now().after(Duration::from_secs(5));
    let mut store = here.store();
    let opened = match store.open(soon()) {
        Ok(opened) => opened,
        Err(OpenError::Unsafe(text) | OpenError::Unreachable(text)) => {
            super::assert_one_line(&text);
            return false;
        }
        Err(OpenError::Credentials(text)) => panic!("credentials: {text}"),
    };
    let (key_state, last) = (opened.key_state, opened.last);
    assert!(key_state.revision <= last);
    assert_eq!(
        key_state.revision == Revision(0),
        key_state.found == KeyValue::Absent
    );
    let lease = Some(record::invented(data));
    let token = "alpha".to_owned();
    let record = Record { token, lease };
    let stale = Revision(key_state.revision.0 ^ 1);
    let moved = store.write(stale, &record, soon());
    assert_eq!(moved, Written::Moved(Some(key_state.revision)));
    assert_eq!(
        store.read(soon()),
        Ok(key_state.clone()),
        "moved, and yet another record"
    );
    match store.write(key_state.revision, &record, soon()) {
        Written::Stored(revision) => {
            assert_eq!(Some(revision.0), last.0.checked_add(1));
            let found = KeyValue::Record(plain(&record));
            assert_eq!(store.read(soon()), Ok(KeyState { revision, found }));
            let again = here.store().open(soon()).expect("it was open before");
            assert_eq!((again.bucket, again.last), (opened.bucket, revision));
        }
        // No number is left, or the record is too large for a file.
        Written::Denied(text) => {
            super::assert_one_line(&text);
            assert!(last == Revision(u64::MAX) || data.len() > 4096, "{text}");
            assert_eq!(store.read(soon()), Ok(key_state));
        }
        Written::Moved(revision) => panic!("moved to {revision:?} by nobody"),
        Written::Unknown(text) => panic!("unknown: {text}"),
    }
    true
}

/// A folder of this thread alone, in memory where there is such a file system.
struct Bucket(PathBuf);

impl Bucket {
    fn here() -> Bucket {
        thread_local! {
            static BASE: OnceCell<PathBuf> = const { OnceCell::new() };
        }
        let thread = std::thread::current().id();
        let make = || {
            let memory = Path::new("/dev/shm");
            let base = if memory.is_dir() {
                memory.to_owned()
            } else {
                std::env::temp_dir()
            };
            base.join(format!("putex-fuzz-{}-{thread:?}", std::process::id()))
        };
        Bucket(BASE.with(|base| base.get_or_init(make).clone()))
    }

    fn store(&self) -> DirStore {
        DirStore::new(self.0.clone(), "b", "k")
    }

    fn fill(&self, data: &[u8]) {
        let folder = self.0.join("b");
        let _ = fs::remove_dir_all(&folder);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.expect("there is room");
        let mut bodies = data.split(|byte| *byte == 0x1e);
        for name in FILES {
            let path = folder.join(name);
            let written = match bodies.next().unwrap_or_default() {
                b"" => continue,
                [b'!', content @ ..] => fs::write(&path, content),
                body => fs::write(&path, text::frame(&String::from_utf8_lossy(body))),
            };
            written.expect("there is room");
        }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Left behind, it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The file by which an agent knows its life before: it counts only when it names
/// this boot, and only when it is whole; what is read can be written and is read
/// the same.
pub fn life(data: &[u8]) -> bool {
    let Ok(file) = str::from_utf8(data) else {
        return false;
    };
    let named = file.split('\n').find_map(|line| line.strip_prefix("boot "));
    let boot = named.filter(|boot| !boot.is_empty()).unwrap_or("here");
    assert_eq!(lives::parse(file, &format!("{boot}?")), None);
    let Some(before) = lives::parse(file, boot) else {
        return false;
    };
    assert_eq!(named, Some(boot), "it does not name its boot");
    assert!(before.dead.len() <= file.len() / 6);
    let whole = lives::render(boot, &before.dead, before.guard.as_deref());
    assert_eq!(lives::parse(&whole, boot), Some(before));
    let at = Noise::of(data).below(whole.len());
    if let Some(cut) = whole.get(..at) {
        assert_eq!(lives::parse(cut, boot), None, "cut off at {at}");
    }
    true
}
