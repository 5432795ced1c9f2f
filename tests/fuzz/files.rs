//! Files: those of the directory store, and the one in which a guard makes notes.

use std::cell::OnceCell;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Noise, record};
use crate::core::command::Command;
use crate::core::event::Written;
use crate::core::record::{KeyState, KeyValue, Lease, Record, Revision};
use crate::core::sanitize;
use crate::core::seat::Seat;
use crate::core::time::Instant;
use crate::guard::note::{self as notes, Fact, Note, Noted, NotedProcess, Service};
use crate::store::dir::DirStore;
use crate::store::dir::sequence::Sequence;
use crate::store::dir::text::{self, Kind};
use crate::store::dir::ticket_time::{TicketTime, UNTIL};
use crate::store::lock_key::{to_content, to_key_state};
use crate::store::{Content, Entry, LockKey, StoreError, StoreErrorKind};
use crate::sys;

/// A file of the directory store, whole or its body alone: it is accepted in one
/// writing only, a damaged one never, and what is read can be written and is read
/// the same. As a key, it has files of its own.
pub fn folder(data: &[u8]) -> bool {
    let unframed = text::unframe(data);
    if let Ok(body) = unframed {
        assert_eq!(text::frame(body), data, "another writing");
        is_known(body);
    }
    let known = is_known(data);
    let mut content = text::frame(data);
    assert_eq!(text::unframe(&content), Ok(data));
    let mut noise = Noise::of(data);
    let at = noise.below(content.len());
    assert!(text::unframe(&content[..at]).is_err(), "cut off at {at}");
    content[at] ^= 1 << noise.below(8);
    assert!(text::unframe(&content).is_err(), "damaged at {at}");
    if let Ok(text) = str::from_utf8(data) {
        has_files_of_its_own(text);
        is_file_of_one_key(text);
    }
    known || unframed.is_ok()
}

/// Returns whether a body is a record, or that of the numbers. A body that is read can be written
/// and is read the same.
fn is_known(body: &[u8]) -> bool {
    let mut known = false;
    if let Some(mut sequence) = Sequence::decode(body) {
        let encoded = sequence.encode();
        assert_eq!(Sequence::decode(encoded.as_bytes()).as_ref(), Some(&sequence));
        let (before, taken) = (sequence.clone(), sequence.next_number(Revision(0)));
        let is_written_over = taken.is_some_and(|(_, must_be_on_disk)| !must_be_on_disk);
        assert!(!is_written_over || sequence.encode().len() == encoded.len());
        let of_next_boot = sequence.enter_boot("another").next_number(Revision(0));
        assert!(of_next_boot.is_none() || of_next_boot > taken, "{before:?}");
        known = true;
    }
    if let Some((revision, content)) = text::decode_record(body) {
        survives(revision, &content);
        if let Some(time) = content.header(UNTIL).and_then(TicketTime::from_text) {
            assert_eq!(TicketTime::from_text(&time.to_text()), Some(time));
        }
        known = true;
    }
    let lease = Some(record::invented(body));
    let token = String::from_utf8_lossy(body).into_owned();
    let record = Record { token, lease };
    let content = to_content(&record);
    survives(Revision(7), &content);
    let entry = Entry { key: "k".to_owned(), revision: Revision(7), content, age: None };
    let found = KeyValue::Record(plain(&record));
    assert_eq!(to_key_state(Some(entry)).value, found);
    if let Some((revision, content)) = text::decode_record(&[b"revision 7\n", body].concat()) {
        survives(revision, &content);
        known = true;
    }
    known
}

fn survives(revision: Revision, content: &Content) {
    let again = text::decode_record(&text::encode_record(revision, content));
    assert_eq!(again, Some((revision, content.clone())));
}

/// A record without the characters that are not shown.
fn plain(record: &Record) -> Record {
    let lease = record.lease.clone().map(|lease| Lease {
        host: sanitize(&lease.host),
        boot: sanitize(&lease.boot),
        ..lease
    });
    let token = record.token.clone();
    Record { token, lease }
}

/// A key can be told from the names of its files, so that no two keys share one.
fn has_files_of_its_own(key: &str) {
    for kind in Kind::ALL {
        let name = kind.file_of(key);
        let visible = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        assert!(name.bytes().all(visible));
        assert_eq!(text::key_of(&name), Some((kind, key.to_owned())));
    }
}

/// The name of a file is that of at most one key.
fn is_file_of_one_key(name: &str) {
    if let Some((kind, key)) = text::key_of(name) {
        assert_eq!(kind.file_of(&key), name);
    }
}

/// The names of a bucket's files, in the order of their bodies.
const FILES: [&str; 4] = ["epoch", "sequence", "k.key", "new"];

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
        Err(StoreError { kind: StoreErrorKind::Unsafe | StoreErrorKind::Unreachable, text }) => {
            super::assert_one_line(&text);
            return false;
        }
        Err(error) => panic!("{error:?}"),
    };
    let (key_state, last) = (opened.key_states[0].clone(), opened.bucket.last);
    assert!(key_state.revision <= last);
    assert_eq!(key_state.revision == Revision(0), key_state.value == KeyValue::Absent);
    let lease = Some(record::invented(data));
    let token = "alpha".to_owned();
    let record = Record { token, lease };
    let stale = Revision(key_state.revision.0 ^ 1);
    let moved = store.write(Seat::FIRST, stale, &record, soon());
    assert_eq!(moved, Written::Moved(Some(key_state.revision)));
    assert_eq!(
        store.read(Seat::FIRST, soon()),
        Ok(key_state.clone()),
        "moved, and yet another record"
    );
    match store.write(Seat::FIRST, key_state.revision, &record, soon()) {
        Written::Stored(revision) => {
            assert_eq!(Some(revision.0), last.0.checked_add(1));
            let found = KeyValue::Record(plain(&record));
            assert_eq!(store.read(Seat::FIRST, soon()), Ok(KeyState { revision, value: found }));
            let again = here.store().open(soon()).expect("it was open before");
            assert_eq!(again.bucket.id, opened.bucket.id);
            assert!(again.bucket.last >= revision);
        }
        // No number is left, or the record is too large for a file.
        Written::Denied(StoreError { text, .. }) => {
            super::assert_one_line(&text);
            assert!(last == Revision(u64::MAX) || data.len() > 4096, "{text}");
            assert_eq!(store.read(Seat::FIRST, soon()), Ok(key_state));
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
            let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            base.join(format!("putex-fuzz-{}-{thread:?}", std::process::id()))
        };
        Bucket(BASE.with(|base| base.get_or_init(make).clone()))
    }

    fn store(&self) -> LockKey {
        LockKey::new(
            Box::new(DirStore::new(self.0.clone(), "b")),
            "k",
            1,
            Duration::from_millis(250),
        )
    }

    fn fill(&self, data: &[u8]) {
        let folder = self.0.join("b");
        let _ = fs::remove_dir_all(&folder);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.expect("there is room");
        let mut bodies = data.split(|byte| *byte == 0x1e);
        for name in FILES {
            let path = folder.join(name);
            let written = match bodies.next().unwrap_or_default() {
                b"" => continue,
                [b'!', content @ ..] => fs::write(&path, content),
                body => fs::write(&path, text::frame(String::from_utf8_lossy(body).as_bytes())),
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

/// The file in which a guard finds the notes of the previous guard: it counts only when it
/// names this boot; one that lacks its end proves nothing to be down; and what is noted is
/// read the same.
pub fn note(data: &[u8]) -> bool {
    let json = serde_json::from_slice::<serde_json::Value>(data).unwrap_or_default();
    let named = json["boot"].as_str().filter(|boot| !boot.is_empty());
    let boot = named.unwrap_or("here");
    for another in [format!("{boot}?"), String::new()] {
        let before = notes::parse(data, &another);
        // A note that cannot be read counts as that of a guard that has started the service.
        assert!(matches!(before.service, Service::Unknown | Service::Up));
        let mut expected = Noted::default();
        expected.service.clone_from(&before.service);
        assert_eq!(before, expected);
    }
    noted_again(data);
    if named.is_none() {
        return false;
    }
    let cut = 1 + Noise::of(data).below(data.trim_ascii_end().len() - 1);
    let service = notes::parse(&data[..cut], boot).service;
    assert_eq!(service, Service::Up, "cut off at {cut}");
    true
}

/// A guard that begins with such a file leaves it so that the next one reads what it noted.
fn noted_again(data: &[u8]) {
    let memory = rustix::fs::memfd_create("putex-note", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.expect("there is memory"));
    file.write_all(data).expect("there is room");
    let begin = || {
        let file = file.try_clone().expect("a descriptor");
        Note::begin(file).expect("there is room")
    };
    let (mut first, before) = begin();
    let again = begin().1;
    // The number of a start may have been given again meanwhile.
    assert_eq!(again.service.was_started(), before.service.was_started());
    assert_eq!(again.cgroups, before.cgroups);
    let process =
        NotedProcess::spawned(rustix::process::getpid(), Instant::from_boot(Duration::ZERO));
    let start = Fact::Command(Command::Start, process.clone());
    first.enter(start).expect("there is room");
    let dir = PathBuf::from("/sys/fs/cgroup/putex");
    first.cgroups(vec![dir.clone()]).expect("there is room");
    let (mut second, before) = begin();
    assert_eq!(before.service, Service::Starting(process));
    assert_eq!(before.cgroups, [dir]);
    second.enter(Fact::Down).expect("there is room");
    assert_eq!(begin().1.service, Service::Down);
}
