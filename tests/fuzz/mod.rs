//! Properties that hold for any bytes that come in: one function for each target of `fuzz/`, each
//! with its own properties. The function panics when one of them does not hold, and returns whether
//! the bytes meant anything.
//!
//! These functions are part of the crate where it is compiled for its tests or for
//! fuzzing, and nowhere else: most parsers are private. `short_run` calls each with
//! every file of `corpus/` and with a fixed number of damaged ones; `fuzz/run` calls
//! them for as long as it is told to.
//!
//! | target | input | files |
//! |---|---|---|
//! | `decoder` | bytes of a server | `wire.rs` |
//! | `frames` | texts to publish | `wire.rs` |
//! | `info`, `answers` | JSON of a server | `server.rs` |
//! | `record` | a header block and a value | `record.rs` |
//! | `ticket` | a header block and a token | `ticket.rs` |
//! | `holder` | the same, met by an agent | `holder.rs` |
//! | `folder`, `bucket` | files of the directory store | `files.rs` |
//! | `note` | the file in which a guard finds the notes of the previous one | `files.rs` |
//! | `messages` | packets between agent and guard | `messages.rs` |
//! | `cli`, `servers` | the command line, a `--nats` list | `line.rs` |
//! | `config` | the configuration file | `config.rs` |

// The functions are meant to panic: a panic ends a fuzzer's run.
#![allow(clippy::missing_panics_doc)]

mod config;
mod files;
mod holder;
mod line;
mod messages;
mod record;
mod server;
mod ticket;
mod wire;

#[cfg(test)]
mod short_run;

pub use config::config;
pub use files::{bucket, folder, note};
pub use holder::holder;
pub use line::{cli, servers};
pub use messages::messages;
pub use record::record;
pub use server::{answers, info};
pub use ticket::ticket;
pub use wire::{decoder, frames};

/// Fails when a text that is shown to people would be more than one line, or would
/// steer their terminal.
fn assert_one_line(text: &str) {
    let fault = text.chars().find(|letter| letter.is_control());
    assert_eq!(fault, None, "not one printable line: {text:?}");
}

/// Numbers that only look random: the same for the same beginning.
#[derive(Clone, Debug)]
struct Noise(u64);

impl Noise {
    /// Begins with what stands in `bytes`.
    fn of(bytes: &[u8]) -> Noise {
        let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Noise(bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1)
    }

    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(self.number() % limit).unwrap_or(0)
    }
}
