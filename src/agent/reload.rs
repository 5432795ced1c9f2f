//! The settings that an agent reads again when it is told to: SIGHUP.

use crate::core::{Event, Reloadable};

/// The settings as they are found now.
pub struct Reloaded {
    /// Those that may change while the agent runs.
    pub reloadable: Reloadable,
    /// A text for each of them that differs from the one that was read last.
    pub changed: Vec<String>,
    /// The names of the others that have changed since the agent was started.
    pub for_restart: Vec<String>,
}

/// Reads the settings again. The error is why they cannot be used.
pub type Reload = Box<dyn FnMut() -> Result<Reloaded, String>>;

/// Reads the settings again, says what has changed, and returns what may change while the agent
/// runs; `None` when they cannot be used.
pub(super) fn reload(read: &mut Reload) -> Option<Event> {
    let Reloaded { reloadable, changed, for_restart } = match read() {
        Ok(reloaded) => reloaded,
        Err(why) => {
            log::error!("SIGHUP: the settings stay as they are: {why}");
            return None;
        }
    };
    if !for_restart.is_empty() {
        let names = for_restart.join(", ");
        log::warn!("SIGHUP: changed, but read only at a start, as by SIGUSR2: {names}");
    }
    if !changed.is_empty() {
        log::info!("SIGHUP: from now on {}", changed.join(", "));
    } else if for_restart.is_empty() {
        log::info!("SIGHUP: nothing to reload");
    }
    Some(Event::Reloaded(reloadable))
}
