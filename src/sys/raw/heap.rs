//! The heap of the C library in the static binary: that of the program.
//!
//! The library's own takes 64 KiB for each size of what it is asked for, and the guard keeps all of
//! them locked: 192 KiB for some hundred bytes. The standard library asks it for memory for each
//! thread.

use std::alloc::{GlobalAlloc as _, Layout};
use std::ffi::{c_int, c_void};
use std::ptr;

use dlmalloc::GlobalDlmalloc;

/// What stands before the memory that was asked for: how much it is, and how far it is from the
/// beginning of what the heap gave.
type Header = [usize; 2];

/// The alignment of memory for which none is named. A header fits.
const ALIGNMENT: usize = 16;

/// The size of a page; memory is seldom asked for by pages.
const PAGE: usize = 4096;

/// Returns what the heap gives for so much memory, which begins so far from its beginning.
fn layout(offset: usize, size: usize) -> Option<Layout> {
    Layout::from_size_align(offset.checked_add(size)?, offset).ok()
}

/// Returns new memory, null if there is none.
fn allocate(alignment: usize, size: usize, is_zeroed: bool) -> *mut c_void {
    let offset = alignment.max(ALIGNMENT);
    let Some(layout) = layout(offset, size) else { return out_of_memory() };
    // SAFETY: the layout is not empty. The header stands before the memory, inside of what the heap
    // has given, and is aligned as that is.
    unsafe {
        let given = match is_zeroed {
            true => GlobalDlmalloc.alloc_zeroed(layout),
            false => GlobalDlmalloc.alloc(layout),
        };
        if given.is_null() {
            return out_of_memory();
        }
        let memory = given.add(offset);
        memory.cast::<Header>().sub(1).write([size, offset]);
        memory.cast()
    }
}

fn out_of_memory() -> *mut c_void {
    fail(libc::ENOMEM)
}

fn fail(number: c_int) -> *mut c_void {
    // SAFETY: the place of the error number of this thread.
    unsafe { *libc::__errno_location() = number };
    ptr::null_mut()
}

/// See malloc(3).
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    allocate(ALIGNMENT, size, false)
}

/// See malloc(3).
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    count.checked_mul(size).map_or_else(out_of_memory, |size| allocate(ALIGNMENT, size, true))
}

/// See malloc(3).
///
/// # Safety
///
/// The memory is of this heap, and not free.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: `allocate` has written the header, and given the memory with this layout.
    unsafe {
        let [size, offset] = memory.cast::<Header>().sub(1).read();
        if let Some(layout) = layout(offset, size) {
            GlobalDlmalloc.dealloc(memory.cast::<u8>().sub(offset), layout);
        }
    }
}

/// See malloc(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    let new = malloc(size);
    if memory.is_null() || new.is_null() {
        return new;
    }
    // SAFETY: both have so many bytes.
    unsafe {
        let both = size.min(malloc_usable_size(memory));
        new.cast::<u8>().copy_from_nonoverlapping(memory.cast(), both);
        free(memory);
    }
    new
}

/// See malloc(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the same.
        Some(size) => unsafe { realloc(memory, size) },
        None => out_of_memory(),
    }
}

/// See malloc_usable_size(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    if memory.is_null() {
        return 0;
    }
    // SAFETY: `allocate` has written the header.
    unsafe { memory.cast::<Header>().sub(1).read()[0] }
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    match alignment.is_power_of_two() {
        true => allocate(alignment, size, false),
        false => fail(libc::EINVAL),
    }
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    aligned_alloc(alignment, size)
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned_alloc(PAGE, size)
}

/// See posix_memalign(3).
///
/// # Safety
///
/// The place for the memory is the caller's.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let memory = allocate(alignment, size, false);
    if memory.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller says so.
    unsafe { to.write(memory) };
    0
}
