//! The hardware watchdog: a device that resets the host unless it is kicked.
//!
//! `/dev/watchdog` of Linux: opening it makes it run, every write kicks it, and a
//! close without the letter V before it lets it run on, into the reset.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::core::{GuardInput, Ms, Timing, resets_in_time, too_slow, wanted_timeout};
use crate::sys::raw;

/// A device that runs.
struct Device {
    path: String,
    file: File,
    timeout: Duration,
    /// Closing does not stop it.
    nowayout: bool,
}

impl Device {
    /// Opens the device, which makes it run, with a timeout that resets the host before the service
    /// must be dead. A device that cannot have such a timeout is stopped again.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, in words.
    fn open(path: &str, timing: Timing) -> Result<Device, String> {
        wanted_timeout(timing).map_err(|why| refused(path, &why))?;
        // To open a FIFO that nobody reads would not return.
        inspect(path)?;
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| refused(path, &cannot_open(&error)))?;
        if let Err(error) = raw::watchdog_timeout(&file)
            && Errno::from_io_error(&error) == Some(Errno::NOTTY)
        {
            // Nothing must be written to a file that is no watchdog device.
            return Err(refused(path, NO_WATCHDOG));
        }
        let (nowayout, timeout) = (nowayout(&file), Duration::ZERO);
        Device { path: path.to_owned(), file, timeout, nowayout }.with_timeout(timing)
    }

    /// Gives the device, which runs, the timeout of these times, which kicks it. A device that
    /// cannot have it is stopped.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, in words.
    fn with_timeout(self, timing: Timing) -> Result<Device, String> {
        match set_timeout(&self.file, timing) {
            Ok(timeout) => Ok(Device { timeout, ..self }),
            Err(why) => {
                disarm(self.file);
                Err(refused(&self.path, &why))
            }
        }
    }
}

/// Asks the device for the timeout of these times; returns the timeout that it has then.
fn set_timeout(file: &File, timing: Timing) -> Result<Duration, String> {
    let wanted = wanted_timeout(timing)?;
    let seconds = i32::try_from(wanted.as_secs()).unwrap_or(i32::MAX);
    // A device that has a timeout of its own tells it below.
    let _ = raw::set_watchdog_timeout(file, seconds);
    match raw::watchdog_timeout(file) {
        Err(error) => Err(format!("it tells no timeout: {error}")),
        Ok(timeout) if timeout.is_zero() || !resets_in_time(timeout, timing) => {
            Err(too_slow(timeout, timing))
        }
        Ok(timeout) => Ok(timeout),
    }
}

fn refused(path: &str, why: &str) -> String {
    format!("watchdog {path}: {why}")
}

/// Closes a device so that it stops, if it can be stopped.
fn disarm(mut device: File) {
    // A failure leaves the device running: the host is reset, which is the safe side.
    let _ = device.write_all(b"V");
}

/// The watchdog device that the guard was told to use, open or not.
pub(super) struct WatchdogDevice {
    /// The path of the device, and whether it is required.
    setting: Option<(String, bool)>,
    timing: Timing,
    open: Option<Device>,
}

impl WatchdogDevice {
    pub(super) fn new(setting: Option<(String, bool)>, timing: Timing) -> WatchdogDevice {
        WatchdogDevice { setting, timing, open: None }
    }

    /// Another instance of the agent may want another device, or another timeout. A device that
    /// is open stays open, as the service may run.
    pub(super) fn configure(&mut self, setting: &Option<(String, bool)>, timing: Timing) {
        self.setting.clone_from(setting);
        self.timing = timing;
    }

    /// Opens the device and closes it again, to know whether it can be used.
    pub(super) fn try_out(&mut self) -> Option<GuardInput> {
        let answer = self.open()?;
        let (Some(device), Some((path, _))) = (&self.open, &self.setting) else {
            return Some(answer);
        };
        if device.nowayout {
            log::warn!(
                "watchdog {path}: it cannot be disarmed (nowayout): it resets this host when \
                 putex has ended"
            );
            return Some(answer);
        }
        log::info!("watchdog {path}: timeout {}", Ms(device.timeout));
        self.close()
    }

    /// Opens the device, or gives one that is open the timeout of the settings.
    pub(super) fn open(&mut self) -> Option<GuardInput> {
        let device = match (self.open.take(), &self.setting) {
            (Some(device), _) => device.with_timeout(self.timing),
            (None, Some((path, _))) => Device::open(path, self.timing),
            (None, None) => return None,
        };
        let required = self.setting.as_ref().is_some_and(|(_, required)| *required);
        Some(match device {
            Ok(device) => {
                let timeout = device.timeout;
                self.open = Some(device);
                GuardInput::DeviceOpened(timeout)
            }
            Err(why) => {
                if !required {
                    log::warn!("{why}; going on without it");
                }
                GuardInput::DeviceFailed(why)
            }
        })
    }

    /// Kicks the device, if it is open: puts the reset off by the timeout.
    pub(super) fn kick(&mut self) {
        if let Some(device) = &mut self.open
            && let Err(error) = device.file.write_all(b"\0")
        {
            log::error!("the watchdog device cannot be kicked: {error}");
        }
    }

    /// Closes the device; one that cannot be stopped stays open, and is kicked.
    pub(super) fn close(&mut self) -> Option<GuardInput> {
        let device = self.open.take_if(|device| !device.nowayout)?;
        disarm(device.file);
        Some(GuardInput::DeviceClosed)
    }
}

/// Returns an error if a device cannot be used, as far as that is seen without opening it, which
/// would make it run.
///
/// # Errors
///
/// Why it cannot be used, in words.
pub fn inspect(path: &str) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| refused(path, &cannot_open(&error)))?;
    let is_device = metadata.file_type().is_char_device() && is_watchdog(metadata.rdev());
    is_device.then_some(()).ok_or_else(|| refused(path, NO_WATCHDOG))
}

const NO_WATCHDOG: &str = "it is not a watchdog device";

/// The number of /dev/watchdog, which is the first device under another number.
const FIRST: (u32, u32) = (10, 130);

/// Returns whether a device of characters is a watchdog, as far as the kernel tells.
fn is_watchdog(number: u64) -> bool {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    match fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem")) {
        Ok(class) => (major, minor) == FIRST || class.ends_with("watchdog"),
        // The kernel does not tell of all devices, and sysfs may not be mounted.
        Err(_) => (major, minor) == FIRST || !Path::new("/sys/dev/char").exists(),
    }
}

fn cannot_open(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => "another process has it open (one may: systemd's \
                              RuntimeWatchdogSec and watchdog(8) use it too)"
            .to_owned(),
        Some(Errno::NOENT) => "there is no such device".to_owned(),
        Some(_) | None => format!("it cannot be opened: {error}"),
    }
}

/// Returns whether the kernel was told never to stop the device. Unknown counts as no: the kernel's
/// log says so too, and the host is reset when the answer was wrong.
fn nowayout(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let folder = if (major, minor) == FIRST {
        "/sys/class/watchdog/watchdog0".to_owned()
    } else {
        format!("/sys/dev/char/{major}:{minor}")
    };
    fs::read_to_string(format!("{folder}/nowayout")).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// An operator wrote the path of another file. Each guard hung when it opened that.
    #[test]
    fn a_fifo_that_nobody_reads_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("putex-fifo-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("there is room");
        let timing = Timing::new(Duration::from_secs(3), 3, 2, 10_000).expect("these are usual");
        let text = path.display().to_string();
        assert_eq!(Device::open(&text, timing).err(), Some(refused(&text, NO_WATCHDOG)));
        fs::remove_file(path).expect("it is there");
    }
}
