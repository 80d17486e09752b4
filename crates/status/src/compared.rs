//! Tables that compare two looks at recordings.

use serde::Serialize;
use tompion_control::Recording;

use crate::{
    by_event::{EventLook, EventTable},
    look::Look,
    table::Table,
    text::frame,
};

/// A table that compares two looks at recordings.
pub trait Compared: Serialize {
    /// State at one time.
    type Look;

    /// Asks the recorders of these recordings.
    fn look(recordings: Vec<Recording>) -> Self::Look;

    /// Compares two looks.
    fn between(before: &Self::Look, after: &Self::Look) -> Self;

    /// Returns as much of the table as a terminal of these columns and rows has room for.
    fn frame(&self, size: (u16, u16)) -> String;

    /// Whether no recorder was found.
    fn is_empty(&self) -> bool;
}

impl Compared for Table {
    type Look = Look;

    fn look(recordings: Vec<Recording>) -> Look {
        Look::at(recordings)
    }

    fn between(before: &Look, after: &Look) -> Self {
        Self::between(before, after)
    }

    fn frame(&self, size: (u16, u16)) -> String {
        frame(self, size)
    }

    fn is_empty(&self) -> bool {
        self.recordings.is_empty() && self.silent.is_empty()
    }
}

impl Compared for EventTable {
    type Look = EventLook;

    fn look(recordings: Vec<Recording>) -> EventLook {
        EventLook::at(recordings)
    }

    fn between(before: &EventLook, after: &EventLook) -> Self {
        Self::between(before, after)
    }

    fn frame(&self, size: (u16, u16)) -> String {
        self.frame(size)
    }

    fn is_empty(&self) -> bool {
        self.recordings.is_empty() && self.silent.is_empty()
    }
}
