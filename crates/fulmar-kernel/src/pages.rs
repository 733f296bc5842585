//! Huge pages for long arrays. A pass over weights in pages of 4 KiB costs a page-table walk for each, and the first
//! write to each a fault.

use std::mem::MaybeUninit;

/// Bytes of a huge page.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_BYTES: usize = 2 << 20;

/// Asks the system to use huge pages for memory that is not written yet, as far as it covers whole ones. A system that
/// ignores this is only slower.
///
/// # Examples
/// ```
/// let mut values: Vec<f32> = Vec::with_capacity(1 << 20);
/// fulmar_kernel::prefer_huge_pages(values.spare_capacity_mut());
/// values.resize(1 << 20, 0.0);
/// ```
pub fn prefer_huge_pages<T>(unwritten: &mut [MaybeUninit<T>]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let bytes = size_of_val(unwritten);
        let first = unwritten.as_mut_ptr().cast::<u8>();
        let before = first.align_offset(HUGE_BYTES);
        let whole = bytes.saturating_sub(before) / HUGE_BYTES * HUGE_BYTES;
        if whole > 0 {
            let at = first.wrapping_add(before).cast();
            // SAFETY: the range is inside `unwritten`, and this advice never changes what memory holds.
            let _ = unsafe { rustix::mm::madvise(at, whole, rustix::mm::Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = unwritten;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_length_and_place_holds_what_is_written_after_the_advice() {
        for len in [0, 1, 1 << 10, (1 << 19) - 1, 1 << 19, (3 << 19) + 5] {
            let mut values: Vec<u32> = vec![7];
            values.reserve_exact(len);
            prefer_huge_pages(values.spare_capacity_mut());
            values.extend(0..len as u32);
            assert!(values[0] == 7 && values[1..].iter().copied().eq(0..len as u32));
        }
    }
}
