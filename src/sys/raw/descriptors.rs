//! A thread with descriptors of its own.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Gives this thread descriptors of its own: these, and none of the others that the process has. So
/// the locks and sockets of a process that is killed end although the kernel cannot end this
/// thread. A kernel before 5.9 cannot do that: the thread goes on with the descriptors of the
/// process.
///
/// Called by a thread that owns no descriptor but these.
pub fn keep_only(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<_> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    let mut from = 0;
    for next in kept.into_iter().chain([RawFd::MAX]) {
        if from < next && !close_own(from, next - 1) {
            return;
        }
        from = next.saturating_add(1);
    }
}

/// Closes the descriptors of a range in this thread alone; returns whether the kernel can.
fn close_own(first: RawFd, last: RawFd) -> bool {
    let (first, last) = (first.cast_unsigned(), last.cast_unsigned());
    // SAFETY: close_range(2) touches no memory. With this flag the other threads keep theirs, and
    // this thread owns none of those that it closes.
    let closed =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) };
    closed == 0
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};
    use std::os::fd::AsFd as _;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// A lock or a socket of a process that is killed, beside a thread that does not end.
    #[test]
    fn a_thread_keeps_open_what_it_is_to_keep_and_nothing_else() {
        let (mut kept, kept_writer) = io::pipe().expect("a pipe");
        let (mut closed, closed_writer) = io::pipe().expect("a pipe");
        let (separate, end) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                keep_only(&[kept_writer.as_fd()]);
                separate.wait();
                end.wait();
                assert!(rustix::io::write(&kept_writer, b"x").is_ok());
                assert!(rustix::io::write(&closed_writer, b"x").is_err());
            });
            separate.wait();
            // The descriptor is open in this thread, and only here.
            assert!(rustix::io::write(&closed_writer, b"y").is_ok());
            end.wait();
        });
        drop((kept_writer, closed_writer));
        let mut text = String::new();
        kept.read_to_string(&mut text).expect("it is text");
        closed.read_to_string(&mut text).expect("it is text");
        assert_eq!(text, "xy");
    }
}
