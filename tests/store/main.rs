//! The directory store: the contract of all stores, and what only a directory has.

mod base;
mod contract;
mod directory;
#[path = "../support/mod.rs"]
mod support;
