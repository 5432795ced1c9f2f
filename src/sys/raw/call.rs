//! System calls without the memory of the calling thread: the library's functions write the error
//! number there, which belongs to another thread when a copy of the process shares its memory.

use std::ffi::{c_char, c_int, c_long};

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
    let path = path.expose_provenance();
    let (arguments, environment) = (arguments.expose_provenance(), environment.expose_provenance());
    // SAFETY: as the caller says.
    unsafe { call(libc::SYS_execve, path, arguments, environment) }
}

/// Closes all descriptors from `first` to `last`. A kernel before 5.9 does not.
///
/// # Safety
///
/// Nothing uses them any more.
pub(super) unsafe fn close_range(first: u32, last: u32) {
    // SAFETY: as the caller says.
    unsafe { call(libc::SYS_close_range, first as usize, last as usize, 0) };
}

/// Makes a system call that returns nothing; returns the error number, or 0.
///
/// # Safety
///
/// As the call demands.
unsafe fn call(number: c_long, first: usize, second: usize, third: usize) -> c_int {
    #[allow(unused_assignments, unused_mut, reason = "one of the ways below sets it")]
    let mut result: isize = 0;
    // SAFETY: the calling conventions of syscall(2).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above. The compiler keeps ebx for itself.
    #[cfg(target_arch = "x86")]
    unsafe {
        std::arch::asm!(
            "xchg {first}, ebx",
            "int 0x80",
            "xchg {first}, ebx",
            first = inout(reg) first => _,
            inlateout("eax") number as isize => result,
            in("ecx") second,
            in("edx") third,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => result,
            in("x1") second,
            in("x2") third,
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
            number = in(reg) number,
            inlateout("r0") first => result,
            in("r1") second,
            in("r2") third,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!(
            "ecall",
            in("a7") number,
            inlateout("a0") first => result,
            in("a1") second,
            in("a2") third,
            options(nostack),
        );
    }
    if SETS_ERRNO {
        // SAFETY: as the caller says.
        unsafe {
            result = libc::syscall(number, first, second, third) as isize;
            return if result == -1 { *libc::__errno_location() } else { 0 };
        }
    }
    c_int::try_from(-result).unwrap_or(0)
}
