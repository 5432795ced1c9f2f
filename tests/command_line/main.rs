//! The command line: options, settings, their files, completions, and answers to mistakes.

#![allow(clippy::unwrap_used)]

mod completions;
mod config;
#[path = "../pages/mdoc.rs"]
mod mdoc;
mod mistakes;
#[path = "../support/mod.rs"]
mod support;
