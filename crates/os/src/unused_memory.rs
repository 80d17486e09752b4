//! Release of memory that a process needed once.

use std::{ffi::c_void, ptr, slice};

/// A segment that can be written to, in `p_flags` (`elf(5)`).
const PF_W: u32 = 2;

/// Gives back to the kernel what a process took that begins with much work and then lives for
/// months with little: memory of the heap that was freed, and pages of the program that were read
/// from its file. What is needed again is mapped again from the page cache.
///
/// Breakpoints and probes in this very process are lost by it. The C library keeps freed memory for
/// later allocations.
///
/// Source: `malloc_trim(3)`, of the GNU C library, others give back by themselves, or never;
/// `MADV_DONTNEED` in `madvise(2)`.
pub fn release_unused_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0)
    };
    // SAFETY: the function has the form that is expected, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(give_back_pages), ptr::null_mut()) };
}

/// Forgets what is mapped of the program's code and constants. Called for the program and for each
/// library.
unsafe extern "C" fn give_back_pages(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> libc::c_int {
    // SAFETY: the dynamic linker gives an object that lives for as long as this call.
    let object = unsafe { &*object };
    if object.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object has so many headers there.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let from_file = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & PF_W == 0;
    let begin = |header: &libc::Elf64_Phdr| (object.dlpi_addr + header.p_vaddr) as usize;
    let own = release_unused_memory as *const () as usize;
    let is_own =
        |header: &libc::Elf64_Phdr| begin(header) <= own && own - begin(header) < header.p_memsz as usize;
    if !headers.iter().filter(from_file).any(is_own) {
        return 0;
    }
    // SAFETY: it only answers.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    for header in headers.iter().filter(from_file) {
        let (first, last) = (begin(header), begin(header) + header.p_memsz as usize);
        let first = first - first % page;
        // SAFETY: it is the part of this program's file that could not be written since it was
        // mapped, so a later access to a page finds the same bytes. Our own objects have no
        // relocations in their code.
        unsafe { libc::madvise(first as *mut c_void, last - first, libc::MADV_DONTNEED) };
    }
    1
}

#[cfg(test)]
mod tests {
    use std::{fs, ops::Range};

    use super::*;

    /// Range where this program's code is mapped, and its size in bytes.
    fn code() -> (Range<usize>, u64) {
        let (mut mapping, mut mapped) = (0..0, 0);
        for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let mut words = line.split_ascii_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((begin, end)) = first.split_once('-') {
                let address = |text| usize::from_str_radix(text, 16).unwrap();
                mapping = address(begin)..address(end);
            } else if first == "Rss:" && mapping.contains(&(release_unused_memory as *const () as usize)) {
                mapped = words.next().unwrap().parse::<u64>().unwrap() << 10;
                break;
            }
        }
        (mapping, mapped)
    }

    #[test]
    fn code_is_mapped_again_when_it_is_needed() {
        // Linux 5.14.
        const MADV_POPULATE_READ: libc::c_int = 22;
        // Tests beside this one need code, too.
        let is_given_back = (0..20).any(|_| {
            let place = code().0;
            // SAFETY: it only maps what is there.
            unsafe { libc::madvise(place.start as *mut c_void, place.len(), MADV_POPULATE_READ) };
            let before = code().1;
            release_unused_memory();
            let after = code().1;
            assert!(before > 0 && after > 0);
            // To read this needs code all over the place.
            after < before * 4 / 5
        });
        assert!(is_given_back, "{:?}", code());
    }
}
