//! The store on real servers, old and new, in numbers, with TLS and logins; the directory store
//! under writers that are killed.

#[path = "../../store/base.rs"]
mod base;
#[path = "../../store/contract/mod.rs"]
mod contract;
mod killed;
mod nats_store;
mod secure;
#[path = "../../support/mod.rs"]
mod support;
