//! Spans that a thread is in, with the recordings that have their begins.

use std::cell::RefCell;

use tracing_core::span::Id;

thread_local! {
    static ENTERED: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the thread has entered a span whose begin these recordings have. A span that none has
/// is not noted.
pub fn push(id: &Id, recordings: u32) {
    if recordings != 0 {
        let add = |entered: &RefCell<Vec<_>>| {
            entered.try_borrow_mut().map(|mut entered| entered.push((id.into_u64(), recordings)))
        };
        // Spans of a thread at its end, and of a signal handler that interrupts this, have no end.
        let _ = ENTERED.try_with(add);
    }
}

/// The recordings that have the begin of the span that the thread leaves; none if no recording has
/// it. Spans may be left in any order.
pub fn pop(id: &Id) -> Option<u32> {
    let remove = |entered: &RefCell<Vec<(u64, u32)>>| {
        let mut entered = entered.try_borrow_mut().ok()?;
        let index = entered.iter().rposition(|(entered, _)| *entered == id.into_u64())?;
        Some(entered.remove(index).1)
    };
    ENTERED.try_with(remove).ok().flatten()
}
