//! The allocator: a bounded area that is handed out from front to back, with the system's allocator as its
//! fallback.
//!
//! An instance lives for one call, so memory need not be freed. And calls scale over threads only if guests do not
//! grow their memory (`memory.grow`): every growth changes the address space of the whole host process, which all
//! threads wait for. So the common call is served from an area that exists from the start and costs nothing until
//! it is touched.
//!
//! Blocks of the area are not reused. The exception is the last block, which grows, shrinks and is freed in place,
//! so filling a `String` or `Vec` costs no copies. A block that does not fit is allocated by the system's
//! allocator, which reuses freed memory. So a connector that uses a lot of memory over time is slower, but never
//! out of memory for that reason.
//!
//! The code that frees a block decides which allocator may serve it. The strings and lists that the host passes
//! *into* an exported function are freed by Rust code alone: they come from the area (`cabi_export_realloc`). Those
//! that an *import* returns may have been requested by C code in wasi-libc, which calls `free` on them: they come
//! from the system's allocator (`cabi_realloc`). Rust code frees both through [`Allocator::dealloc`], which
//! distinguishes them by their address.
#![allow(unsafe_code, reason = "an allocator is raw memory by nature; this file alone is")]

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// The number of bytes that are served before the system's allocator is used.
const AREA: usize = 768 * 1024;

#[global_allocator]
static ALLOCATOR: Allocator =
    Allocator { area: UnsafeCell::new([0; AREA]), next: Cell::new(0), dirty: Cell::new(0) };

/// The area, and its used part.
struct Allocator {
    area: UnsafeCell<[u8; AREA]>,
    /// The offset of the first free byte.
    next: Cell<usize>,
    /// The offset of the first byte that was never used: from here on all bytes are still zero.
    dirty: Cell<usize>,
}

// SAFETY: the target has no threads, so nothing is ever shared.
unsafe impl Sync for Allocator {}

impl Allocator {
    fn base(&self) -> usize {
        self.area.get().addr()
    }

    /// Returns the offset of `block` in the area. None for a block of the system's allocator.
    fn offset(&self, block: *mut u8) -> Option<usize> {
        block.addr().checked_sub(self.base()).filter(|offset| *offset < AREA)
    }

    /// Takes `layout` from the area. Returns its offset if it fits.
    fn take(&self, layout: Layout) -> Option<usize> {
        let start = self.base().checked_add(self.next.get())?.checked_next_multiple_of(layout.align())?;
        let offset = start - self.base();
        let end = offset.checked_add(layout.size()).filter(|end| *end <= AREA)?;
        self.use_to(end);
        Some(offset)
    }

    fn use_to(&self, end: usize) {
        self.next.set(end);
        self.dirty.set(self.dirty.get().max(end));
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.area.get().cast::<u8>().wrapping_add(offset)
    }
}

// SAFETY: blocks of the area are aligned, inside it and disjoint, since `next` passes over each before it is handed
// out and returns only over the last one; all others are the system's own.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some(offset) => self.at(offset),
            // SAFETY: the caller's promises are `System`'s.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let dirty = self.dirty.get();
        match self.take(layout) {
            Some(offset) => {
                let used_before = dirty.saturating_sub(offset).min(layout.size());
                // SAFETY: the block was just taken, and is at least that long.
                unsafe { ptr::write_bytes(self.at(offset), 0, used_before) };
                self.at(offset)
            }
            // SAFETY: the caller's promises are `System`'s.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.offset(block) {
            Some(offset) if offset + layout.size() == self.next.get() => self.next.set(offset),
            Some(_) => {}
            // SAFETY: a block that is not in the area is `System`'s.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(offset) = self.offset(block) else {
            // SAFETY: a block that is not in the area is `System`'s.
            return unsafe { System.realloc(block, layout, size) };
        };
        let last = offset + layout.size() == self.next.get();
        match offset.checked_add(size) {
            Some(end) if last && end <= AREA => {
                self.use_to(end);
                return block;
            }
            _ if size <= layout.size() => return block,
            _ => {}
        }
        // SAFETY: the caller promises that `size` is valid for this alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are at least as long as the old one, and they are disjoint.
            unsafe { ptr::copy_nonoverlapping(block, new, layout.size()) };
        }
        new
    }
}

/// Allocates memory for values that the host passes into an exported function.
///
/// # Safety
///
/// As for the canonical ABI's `realloc`: `old`, `old_len` and `align` are those of an earlier call, or `old_len` is
/// 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn cabi_export_realloc(
    old: *mut u8,
    old_len: usize,
    align: usize,
    new_len: usize,
) -> *mut u8 {
    // SAFETY: the caller's promises are passed on.
    unsafe { canonical(&ALLOCATOR, old, old_len, align, new_len) }
}

/// Allocates memory for values that an imported function returns. It replaces the definition in std, which would
/// use the global allocator and therefore the area.
///
/// # Safety
///
/// As for [`cabi_export_realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, new_len: usize) -> *mut u8 {
    // SAFETY: the caller's promises are passed on.
    unsafe { canonical(&System, old, old_len, align, new_len) }
}

unsafe fn canonical(
    from: &impl GlobalAlloc,
    old: *mut u8,
    old_len: usize,
    align: usize,
    new_len: usize,
) -> *mut u8 {
    if old_len == 0 && new_len == 0 {
        return ptr::without_provenance_mut(align);
    }
    // SAFETY: the canonical ABI passes valid alignments, and lengths that fit the memory.
    let (layout, block) = unsafe {
        if old_len == 0 {
            let layout = Layout::from_size_align_unchecked(new_len, align);
            (layout, from.alloc(layout))
        } else {
            let layout = Layout::from_size_align_unchecked(old_len, align);
            (layout, from.realloc(old, layout, new_len))
        }
    };
    if block.is_null() {
        handle_alloc_error(layout);
    }
    block
}
