//! The texts: manual, README, the files of `contrib`, and what packages lay out, each against
//! the program.

#![allow(clippy::unwrap_used)]

mod contrib;
mod docs;
mod manual;
mod mdoc;
mod packages;
mod readme;
#[path = "../support/mod.rs"]
mod support;
mod theory;
