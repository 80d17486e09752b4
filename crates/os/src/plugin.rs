//! Functions of a library that was loaded before the program: the event of a loop under test.

use std::ffi::{CStr, c_int};

type Record = unsafe extern "C" fn(u64, u64);
type IsEnabled = unsafe extern "C" fn() -> c_int;

/// An event that another library records: the same loop can measure events of several tracers.
///
/// The library is in the process from its start (`LD_PRELOAD`) and defines
///
/// ```c
/// void tompion_loop_event(uint64_t number, uint64_t value);
/// int tompion_loop_event_enabled(void);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LoopEvent {
    record: Record,
    is_enabled: IsEnabled,
}

impl LoopEvent {
    /// The event of the library that is there; none without one.
    pub fn find() -> Option<Self> {
        let (record, is_enabled) = (symbol(c"tompion_loop_event"), symbol(c"tompion_loop_event_enabled"));
        if record.is_null() || is_enabled.is_null() {
            return None;
        }
        // SAFETY: functions of these types; a library that defines these names defines them as
        // agreed, and one that was loaded before the program stays loaded.
        unsafe {
            Some(Self {
                record: std::mem::transmute::<*mut libc::c_void, Record>(record),
                is_enabled: std::mem::transmute::<*mut libc::c_void, IsEnabled>(is_enabled),
            })
        }
    }

    /// Records the event, if a recorder takes it.
    #[inline(always)]
    pub fn record(self, number: u64, value: u64) {
        // SAFETY: a function of this type, in a library that stays loaded.
        unsafe { (self.record)(number, value) };
    }

    /// Whether a recorder takes it.
    pub fn is_enabled(self) -> bool {
        // SAFETY: as above.
        unsafe { (self.is_enabled)() != 0 }
    }
}

/// The address of a name that any object of the process defines, or null.
fn symbol(name: &CStr) -> *mut libc::c_void {
    // SAFETY: the name is text.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_library_there_is_no_event() {
        assert!(LoopEvent::find().is_none());
        assert!(!symbol(c"getpid").is_null());
    }
}
