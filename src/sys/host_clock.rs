//! Which boot this is, and whether the clock of this process is that of the host: instants that
//! other processes read are those of that clock.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the kernel tells the boot.
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The file system of that file, by the number of statfs(2).
const PROC: u64 = 0x9fa0;

/// The time namespace of the host, by the inode that the kernel gives it in each boot.
const TIME_OF_HOST: u64 = 0xeffffffa;

/// Returns the kernel's random name of this boot; blank where the kernel does not tell it. A
/// container may have been given a name of its own, by a file that is mounted there: such a name
/// tells nothing about the clock, for which this function is. About processes it does: see
/// [`boot_id`](super::boot_id).
pub fn boot() -> String {
    let path = Path::new(BOOT_ID);
    let read = || -> io::Result<Option<String>> {
        let mut file = File::open(path)?;
        let system = rustix::fs::fstatfs(&file)?.f_type as u64 & 0xffff_ffff;
        let above = fs::metadata(path.parent().unwrap_or(path))?;
        let is_kernels = system == PROC && file.metadata()?.dev() == above.dev();
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // Another file of the kernel may be mounted there: `uuid` has another name each time.
        let is_constant = fs::read_to_string(path)? == text;
        Ok((is_kernels && is_constant).then(|| text.trim().to_owned()))
    };
    read().ok().flatten().unwrap_or_default()
}

/// Returns whether the clock of this process is that of the host. Other time namespaces have
/// clocks with other beginnings.
pub fn has_clock_of_host() -> bool {
    match fs::metadata("/proc/self/ns/time") {
        Ok(namespace) => namespace.ino() == TIME_OF_HOST,
        // A kernel without time namespaces has one clock.
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/ns").exists()
        }
    }
}

/// Returns the name of the clock of the host; blank for a process that has another one. The clock
/// of another time namespace has no name: the number of an ended one is given to the next.
pub fn name() -> String {
    if has_clock_of_host() { boot() } else { String::new() }
}
