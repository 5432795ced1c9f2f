//! The manual pages that explain flags.

use std::collections::BTreeSet;

use putex::cli::table::{FLAGS, Flag, Name, Subcommand};

use crate::mdoc::read;

/// The commands that have pages of their own.
pub(crate) const WITH_PAGES: [Subcommand; 10] = [
    Subcommand::Lock,
    Subcommand::Grab,
    Subcommand::Release,
    Subcommand::Lease,
    Subcommand::Put,
    Subcommand::Status,
    Subcommand::Switchover,
    Subcommand::Pause,
    Subcommand::Resume,
    Subcommand::Doctor,
];

const LOCKS: &[Subcommand] = &WITH_PAGES;

/// Returns the pages that explain flags, each with the flags.
pub(crate) fn explained_flags() -> [(String, Vec<&'static Flag>); 8] {
    let of = |takes: &dyn Fn(&Subcommand) -> bool| {
        let has = |flag: &&Flag| flag.subcommands.iter().any(takes);
        FLAGS.iter().filter(has).collect::<Vec<_>>()
    };
    // The flags that all commands have are explained once, in putex(8).
    let own = |takes: &dyn Fn(&Subcommand) -> bool| {
        let mut flags = of(takes);
        let is_common =
            |name: Name| name.is_of_store() || matches!(name, Name::Help | Name::Version);
        flags.retain(|flag| !is_common(flag.name));
        flags
    };
    [
        (read("man/putex.8"), of(&|it| !LOCKS.contains(it))),
        (read("man/putex-lock.1"), own(&|it| *it == LOCKS[0])),
        (read("man/putex-grab.1"), own(&|it| LOCKS[1..3].contains(it))),
        (read("man/putex-lease.1"), own(&|it| LOCKS[3..5].contains(it))),
        (read("man/putex-status.1"), own(&|it| *it == LOCKS[5])),
        (read("man/putex-switchover.1"), own(&|it| *it == LOCKS[6])),
        (read("man/putex-pause.1"), own(&|it| LOCKS[7..9].contains(it))),
        (read("man/putex-doctor.1"), own(&|it| *it == LOCKS[9])),
    ]
}

/// Returns the exit statuses in a part of `src/exit.rs`.
pub(crate) fn statuses(program: &str) -> BTreeSet<u8> {
    let numbers = program.lines().filter_map(|line| {
        let (_, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        number.parse().ok()
    });
    numbers.collect()
}
