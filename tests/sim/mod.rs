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
pub mod campaign;
pub mod clock;
pub mod counters;
pub mod device;
pub mod faults;
pub mod guard;
pub mod lanes;
pub mod life;
pub mod liveness;
pub mod nursery;
pub mod oracle;
pub mod plain;
pub mod process;
pub mod random;
pub mod scenario;
pub mod shrink;
pub mod store;
pub mod strike;
pub mod wire;
pub mod witness;
pub mod world;
