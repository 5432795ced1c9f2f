//! The kernel's state of a connection and of its clock.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Where `tcpi_last_ack_recv` stands in `struct tcp_info` of linux/tcp.h, in bytes.
const LAST_ACK_AT: usize = 56;

/// The bytes of `struct tcp_info` that are read.
const INFO_BYTES: usize = LAST_ACK_AT + size_of::<u32>();

/// Returns how long ago the host at the other end of a TCP connection acknowledged something, to a
/// few milliseconds: its kernel acknowledges even if the program there does not read.
///
/// # Errors
///
/// When the socket is no TCP connection, or the kernel does not tell.
pub fn acknowledged_ago(socket: impl AsFd) -> io::Result<Duration> {
    let mut info = [0u8; INFO_BYTES];
    let mut bytes = INFO_BYTES as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: getsockopt(2) writes at most so many bytes there, and how many it has written.
    let done = unsafe {
        let to = info.as_mut_ptr().cast();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut bytes)
    };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    if (bytes as usize) < INFO_BYTES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let milliseconds = info[LAST_ACK_AT..].first_chunk().copied().unwrap_or_default();
    Ok(Duration::from_millis(u32::from_ne_bytes(milliseconds).into()))
}

/// How the kernel corrects the rate of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockRate {
    /// The correction in force, in parts per million, rounded up: without sign.
    pub correction_ppm: u32,
    /// Whether a program keeps the clock synchronised with others.
    pub is_synchronised: bool,
}

/// The rate at which the kernel removes an offset itself, in parts per million.
const SLEW_PPM: f64 = 500.0;

/// Returns how the kernel corrects its clock; changes nothing.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn clock_rate() -> io::Result<ClockRate> {
    let mut timex = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: adjtimex(2) reads the modes, which are none, and fills in the rest, which is plain
    // data.
    let timex = unsafe {
        if libc::adjtimex(timex.as_mut_ptr()) == -1 {
            return Err(io::Error::last_os_error());
        }
        timex.assume_init()
    };
    // The frequency is in units of 2^-16 ppm, a tick of 10,000 µs in units of 100 ppm.
    let by_frequency = timex.freq as f64 / 65536.0;
    let by_tick = (timex.tick as f64 - 10_000.0) * 100.0;
    let by_slew = if timex.offset == 0 { 0.0 } else { SLEW_PPM };
    Ok(ClockRate {
        correction_ppm: ((by_frequency + by_tick).abs() + by_slew).ceil() as u32,
        is_synchronised: timex.status & libc::STA_UNSYNC == 0,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sys::{self, Alarm};

    #[test]
    fn the_kernel_tells_when_the_other_end_has_acknowledged_something() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut one = TcpStream::connect(address).expect("a connection");
        let (mut other, _) = listener.accept().expect("a connection");
        one.write_all(b"x").expect("it is sent");
        other.read_exact(&mut [0]).expect("it comes");
        let until = sys::now().after(Duration::from_millis(50));
        let first = acknowledged_ago(&one).expect("the kernel tells");
        Alarm::new().and_then(|alarm| alarm.wait([], Some(until))).expect("it waits");
        let later = acknowledged_ago(&one).expect("the kernel tells");
        assert!(later >= first + Duration::from_millis(40), "{first:?} {later:?}");
        assert!(acknowledged_ago(std::fs::File::open("/dev/null").expect("a file")).is_err());
    }

    #[test]
    fn the_kernel_tells_how_it_corrects_its_clock() {
        // chrony corrects by 83333 ppm at most, the kernel takes 100000.
        let rate = clock_rate().expect("it tells");
        assert!(rate.correction_ppm < 101_000, "{rate:?}");
    }
}
