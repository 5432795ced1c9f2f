//! The hardware watchdog: a device that resets the host unless it is kicked.
//!
//! `/dev/watchdog` of Linux: opening it makes it run, every write kicks it, and a
//! close without the letter V before it lets it run on, into the reset.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use rustix::io::Errno;

use crate::core::{GuardInput, Ms, Timing, resets_in_time, too_slow, wanted_timeout};
use crate::sys::raw;

/// A device that runs.
struct Device {
    file: File,
    timeout: Duration,
    /// Closing does not stop it.
    nowayout: bool,
}

impl Device {
    /// Opens the device, which makes it run, with a timeout that resets the host before
    /// the service must be dead. One that cannot is stopped again.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, in words.
    fn open(path: &str, timing: Timing) -> Result<Device, String> {
        let refuse = |why: String| format!("watchdog {path}: {why}");
        let wanted = wanted_timeout(timing).map_err(refuse)?;
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| refuse(cannot_open(&error)))?;
        let seconds = i32::try_from(wanted.as_secs()).unwrap_or(i32::MAX);
        // One that has a timeout of its own says which below.
        let _ = raw::set_watchdog_timeout(&file, seconds);
        let why = match raw::watchdog_timeout(&file) {
            // Nothing must be written to what is no watchdog device.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => {
                return Err(refuse("it is not a watchdog device".to_owned()));
            }
            Err(error) => format!("it tells no timeout: {error}"),
            Ok(timeout) if timeout.is_zero() || !resets_in_time(timeout, timing) => {
                too_slow(timeout, timing)
            }
            Ok(timeout) => return Ok(Device { nowayout: nowayout(&file), file, timeout }),
        };
        disarm(file);
        Err(refuse(why))
    }
}

/// Closes a device so that it stops, if it can be stopped.
fn disarm(mut device: File) {
    // A failure leaves it running: the host is reset, which is the safe side.
    let _ = device.write_all(b"V");
}

/// The watchdog device that the guard was told to use, open or not.
pub(super) struct WatchdogDevice {
    /// Its path, and whether it is required.
    setting: Option<(String, bool)>,
    timing: Timing,
    open: Option<Device>,
}

impl WatchdogDevice {
    pub(super) fn new(setting: Option<(String, bool)>, timing: Timing) -> WatchdogDevice {
        WatchdogDevice { setting, timing, open: None }
    }

    /// Another instance of the agent may want another device, or another timeout: then the
    /// device is closed, if it can be stopped.
    pub(super) fn configure(
        &mut self,
        setting: &Option<(String, bool)>,
        timing: Timing,
    ) -> Option<GuardInput> {
        let changed = self.setting != *setting || self.timing != timing;
        let closed = changed.then(|| self.close()).flatten();
        self.setting.clone_from(setting);
        self.timing = timing;
        closed
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

    /// Opens the device.
    pub(super) fn open(&mut self) -> Option<GuardInput> {
        let (path, required) = self.setting.as_ref()?;
        Some(match Device::open(path, self.timing) {
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

/// Says what is wrong with a device, as far as that is seen without opening it, which
/// would make it run.
///
/// # Errors
///
/// Why it cannot be used, in words.
pub fn inspect(path: &str) -> Result<(), String> {
    let refuse = |why: String| format!("watchdog {path}: {why}");
    let metadata = fs::metadata(path).map_err(|error| refuse(cannot_open(&error)))?;
    let is_device = metadata.file_type().is_char_device();
    is_device.then_some(()).ok_or_else(|| refuse("it is not a watchdog device".to_owned()))
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

/// Whether the kernel was told never to stop the device. Unknown counts as no: the
/// kernel's log says so too, and the host is reset when it was wrong.
fn nowayout(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    // /dev/watchdog is the first device under another number.
    let folder = if (major, minor) == (10, 130) {
        "/sys/class/watchdog/watchdog0".to_owned()
    } else {
        format!("/sys/dev/char/{major}:{minor}")
    };
    fs::read_to_string(format!("{folder}/nowayout")).is_ok_and(|text| text.trim() == "1")
}
