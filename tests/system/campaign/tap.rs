//! The host's end of a cable: a network device whose frames a process reads and writes.

use std::fs::{File, OpenOptions};
use std::io;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// TUNSETIFF of linux/if_tun.h, which passes a whole `ifreq` under the number of an int.
const SET_DEVICE: Opcode = opcode::write::<i32>(b'T', 202);

/// IFF_TAP and IFF_NO_PI of linux/if_tun.h: whole frames and nothing before them.
const WHOLE_FRAMES: u16 = 0x0002 | 0x1000;

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a device in this network namespace; it goes with the returned file.
#[expect(unsafe_code, reason = "an ioctl")]
pub(crate) fn make(name: &str) -> io::Result<File> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: WHOLE_FRAMES, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: linux/if_tun.h: TUNSETIFF reads and writes one ifreq of 40 bytes, which
    // Request is; the kernel's answer, the same name, is not looked at.
    unsafe { ioctl(&tun, Setter::<SET_DEVICE, Request>::new(request)) }?;
    Ok(tun)
}
