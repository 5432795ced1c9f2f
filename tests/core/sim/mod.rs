//! A deterministic simulator of agents, guards, commands, clocks and a store.

/// An enumeration of names alone, and the list of them all.
macro_rules! listed {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $kind:ident,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$what])* $kind,)*
        }

        impl $name {
            pub const ALL: [$name; [$($name::$kind),*].len()] = [$($name::$kind),*];
        }
    };
}

pub mod agent;
pub mod agent_event;
pub mod answer_time;
pub mod campaign;
pub mod checks;
pub mod client;
pub mod clock;
pub mod commands;
pub mod counters;
pub mod device;
pub mod excuse;
pub mod faults;
pub mod guard;
pub mod hints;
pub mod instance;
pub mod lanes;
pub mod liveness;
pub mod needless;
pub mod oracle;
pub mod plain;
pub mod process;
pub mod random;
pub mod reasons;
pub mod scenario;
pub mod shrink;
pub mod store;
pub mod strike;
pub mod wire;
pub mod witness;
pub mod world;
