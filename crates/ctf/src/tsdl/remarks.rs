//! Remarks on oddities of a description that leave its decoding clear.

use std::collections::HashSet;

use super::Position;

/// Maximum number of remarks that are kept; a damaged text can have any number.
const MAX_REMARKS: usize = 16;

/// Remarks, each kind once.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    texts: Vec<String>,
    seen: HashSet<String>,
    /// Number of remarks beyond the limit.
    further: usize,
}

impl Remarks {
    /// Adds a remark, unless the same was made elsewhere.
    pub fn add(&mut self, at: Position, remark: impl Into<String>) {
        let remark = remark.into();
        if !self.seen.insert(remark.clone()) {
            return;
        }
        if self.texts.len() == MAX_REMARKS {
            self.further += 1;
        } else {
            self.texts.push(format!("{remark}, line {}, column {}", at.line, at.column));
        }
    }

    /// Returns all remarks, one line each.
    pub fn into_texts(mut self) -> Vec<String> {
        if self.further > 0 {
            self.texts.push(format!("{} further remarks on the description", self.further));
        }
        self.texts
    }
}
