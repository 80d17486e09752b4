//! Table of the event classes that the kernel's trace has so far.
//!
//! It is asked for each event, millions of times a second. Events with programs of their own and
//! system calls are found by index; the rest by hash.

use std::collections::HashMap;

use tompion_kernel::decode::{Call, Class, Vocabulary};
use tompion_writer::{ClassId, SourceWriter};

/// Largest number of a system call that is found by index, of `entry` and of `exit`.
const MAX_INDEXED_CALL: u32 = 1023;
/// Number of indexes for calls' entries, and again for their returns.
const KIND: usize = MAX_INDEXED_CALL as usize + 1;

/// Maps classes of the decoder to those of the trace.
#[derive(Debug)]
pub struct Classes {
    indexed: Vec<Option<ClassId>>,
    others: HashMap<Class, ClassId>,
}

impl Classes {
    /// Returns a table without a class.
    pub fn new() -> Self {
        Self { indexed: vec![None; 3 * KIND], others: HashMap::new() }
    }

    /// Returns the trace's class. Describes it in the trace if it is new.
    #[inline]
    pub fn id(&mut self, class: Class, writer: &mut SourceWriter, vocabulary: &Vocabulary) -> ClassId {
        let slot = index(class).and_then(|index| self.indexed.get_mut(index));
        match slot {
            Some(Some(id)) => *id,
            Some(slot) => *slot.insert(writer.add_class(&vocabulary.event(class))),
            None => self.other(class, writer, vocabulary),
        }
    }

    fn other(&mut self, class: Class, writer: &mut SourceWriter, vocabulary: &Vocabulary) -> ClassId {
        *self.others.entry(class).or_insert_with(|| writer.add_class(&vocabulary.event(class)))
    }
}

/// Place of a class in the table, if it has one.
fn index(class: Class) -> Option<usize> {
    match class {
        Class::Entry(Call::Known(number)) if number <= MAX_INDEXED_CALL => Some(number as usize),
        Class::Exit(Call::Known(number), 0) if number <= MAX_INDEXED_CALL => Some(KIND + number as usize),
        Class::Known(place) if place < KIND => Some(2 * KIND + place),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_indexed_class_has_a_place_of_its_own() {
        let calls = (0..=MAX_INDEXED_CALL).map(Call::Known);
        let classes = calls.flat_map(|call| [Class::Entry(call), Class::Exit(call, 0)]);
        let classes = classes.chain((0..KIND).map(Class::Known));
        let places: HashSet<usize> = classes.filter_map(index).collect();
        assert_eq!((places.len(), places.iter().max()), (3 * KIND, Some(&(3 * KIND - 1))));
    }

    #[test]
    fn other_classes_are_found_by_hash() {
        let calls = [Call::Known(MAX_INDEXED_CALL + 1), Call::Unknown, Call::Compatible];
        assert!(calls.iter().all(|call| index(Class::Entry(*call)).is_none()));
        assert_eq!([index(Class::Exit(Call::Known(1), 1)), index(Class::Known(KIND))], [None; 2]);
    }
}
