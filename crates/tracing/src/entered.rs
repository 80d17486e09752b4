//! Spans that a thread is in, with the recordings that have their begins.

use std::cell::RefCell;

use tracing_core::span::Id;

/// Maximum number of spans that a thread is in. Spans that were never left, or on another thread,
/// would stay for ever.
const MAX_ENTERED: usize = 1024;

thread_local! {
    static ENTERED: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the thread has entered a span whose begin these recordings have. A span that none has
/// is not noted.
pub fn push(id: &Id, recordings: u32) {
    if recordings != 0 {
        let add = |entered: &RefCell<Vec<_>>| {
            entered.try_borrow_mut().map(|mut entered| {
                if entered.len() == MAX_ENTERED {
                    entered.remove(0);
                }
                entered.push((id.into_u64(), recordings));
            })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_left_in_any_order_and_those_that_are_never_left_are_forgotten() {
        let id = Id::from_u64;
        push(&id(1), 1);
        push(&id(2), 2);
        push(&id(1), 4);
        push(&id(3), 0);
        assert_eq!([1, 3, 2, 1, 1].map(|number| pop(&id(number))), [Some(4), None, Some(2), Some(1), None]);
        (1..=5000).for_each(|number| push(&id(number), 1));
        assert_eq!(ENTERED.with(|entered| entered.borrow().len()), MAX_ENTERED);
        assert_eq!([5000, 1].map(|number| pop(&id(number))), [Some(1), None]);
    }
}
