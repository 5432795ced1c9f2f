//! Buckets in a folder of a test.

#![allow(dead_code, reason = "each suite uses its own part of this")]

use std::path::PathBuf;

use putex::core::event::{StoreError, Written};
use putex::store::LockKey;
use putex::store::dir::DirStore;

use crate::contract::open;
use crate::support::clock::READ_MAX;
use crate::support::folder::Folder;

/// A folder with buckets in it, which is removed when this is dropped.
pub(crate) struct Base(pub(crate) Folder);

impl Base {
    pub(crate) fn new() -> Base {
        Base(Folder::new("base"))
    }

    pub(crate) fn store(&self, key: &str) -> LockKey {
        self.store_of("b", key)
    }

    pub(crate) fn store_of(&self, bucket: &str, key: &str) -> LockKey {
        LockKey::new(self.bucket(bucket), key, 1, READ_MAX)
    }

    pub(crate) fn bucket(&self, bucket: &str) -> Box<DirStore> {
        Box::new(DirStore::new(self.0.to_path_buf(), bucket))
    }

    pub(crate) fn open(&self, key: &str) -> LockKey {
        open(&|bucket| self.bucket(bucket), "b", key).0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join("b").join(name)
    }
}

/// Returns why a write was denied.
pub(crate) fn denied(written: Written) -> String {
    let Written::Denied(StoreError { text, .. }) = &written else {
        panic!("not denied but {written:?}");
    };
    text.clone()
}
