//! execve(2) without the memory of the calling thread: the library's function writes the error
//! number there, which belongs to another thread when a copy of the process shares its memory.

use std::ffi::{c_char, c_int};

/// Whether the error number is written all the same: on processors without a way of their own.
pub(super) const SETS_ERRNO: bool = !cfg!(any(
    target_arch = "x86_64",
    target_arch = "x86",
    target_arch = "aarch64",
    target_arch = "arm",
    target_arch = "riscv64",
));

/// Executes a program. Returns only when that fails: the error number.
///
/// # Safety
///
/// The path is a text that ends in a zero; the lists are of such texts and end in null.
pub(super) unsafe fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    #[allow(unused_assignments, unused_mut, reason = "one of the ways below sets it")]
    let mut result: isize = 0;
    // SAFETY: the calling conventions of syscall(2). The kernel writes to no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_execve as isize => result,
            in("rdi") path,
            in("rsi") arguments,
            in("rdx") environment,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above. The compiler keeps ebx for itself.
    #[cfg(target_arch = "x86")]
    unsafe {
        std::arch::asm!(
            "xchg {path}, ebx",
            "int 0x80",
            "xchg {path}, ebx",
            path = inout(reg) path => _,
            inlateout("eax") libc::SYS_execve as isize => result,
            in("ecx") arguments,
            in("edx") environment,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_execve,
            inlateout("x0") path => result,
            in("x1") arguments,
            in("x2") environment,
            options(nostack),
        );
    }
    // SAFETY: as above. In Thumb code the compiler keeps r7 for itself.
    #[cfg(target_arch = "arm")]
    unsafe {
        std::arch::asm!(
            "mov {kept}, r7",
            "mov r7, {number}",
            "svc 0",
            "mov r7, {kept}",
            kept = out(reg) _,
            number = in(reg) libc::SYS_execve,
            inlateout("r0") path => result,
            in("r1") arguments,
            in("r2") environment,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!(
            "ecall",
            in("a7") libc::SYS_execve,
            inlateout("a0") path => result,
            in("a1") arguments,
            in("a2") environment,
            options(nostack),
        );
    }
    if SETS_ERRNO {
        // SAFETY: as the caller says.
        unsafe {
            libc::execve(path, arguments, environment);
            return *libc::__errno_location();
        }
    }
    c_int::try_from(-result).unwrap_or(libc::EINVAL)
}
