//! Joins all blocks to one function, and puts it into the compiled programs.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol};

use super::{
    code::{Code, Condition, Label, NOTHING, Operation},
    generate::{Block, EXTRA, FIRST, IMAGE, SECOND},
};

/// Instructions that there is room for (`src/bpf/filter.h`).
pub(super) const ROOM: usize = 8192;

/// Blocks by the number beside an event's from which on they are meant, in order.
type Blocks = Vec<(u32, Block)>;

/// A block that wants nothing.
pub(super) fn refusal() -> Vec<u64> {
    let mut code = Code::default();
    code.exit(false);
    code.finish().unwrap_or_default()
}

/// The function: by the event's number, and by what stands beside it, to a block. It fills the
/// whole room.
///
/// # Errors
/// How many instructions it would take, if that is too many.
pub(super) fn assemble(events: &BTreeMap<u16, Blocks>) -> Result<Vec<u64>, usize> {
    let mut code = Code::default();
    let rest = code.label();
    // No event has this number. So the verifier never goes there, but sees that one could.
    code.jump_by(Condition::Equal, (1, 0), rest);
    for (register, argument) in [(IMAGE, 3), (FIRST, 4), (SECOND, 5)] {
        code.operate(Operation::Move, register, argument);
    }
    code.move_half(EXTRA, 2);
    let mut bodies: BTreeMap<Vec<u64>, Label> = BTreeMap::new();
    let mut choices = Vec::new();
    for (number, blocks) in events.iter().filter(|(_, blocks)| !blocks.is_empty()) {
        let choice = code.label();
        code.jump_by(Condition::Equal, (1, (*number).into()), choice);
        let mut begins: Vec<(u32, Label)> = Vec::new();
        for (begin, block) in blocks {
            let label = *bodies.entry(block.code.clone()).or_insert_with(|| code.label());
            if begins.last().is_none_or(|(_, last)| *last != label) {
                begins.push((*begin, label));
            }
        }
        choices.push((choice, begins));
    }
    code.exit(false);
    for (choice, begins) in &choices {
        code.place(*choice);
        choose(&mut code, begins);
    }
    for (body, label) in &bodies {
        code.place(*label);
        code.append(body);
    }
    code.place(rest);
    let padding = ROOM.checked_sub(code.len() + 2).ok_or(code.len())?;
    code.append(&vec![NOTHING; padding]);
    code.exit(false);
    code.finish().ok_or(ROOM)
}

/// Goes to the last one that begins at or before the number, by halves.
fn choose(code: &mut Code, begins: &[(u32, Label)]) {
    match begins {
        [] => {}
        [(_, label)] => code.goto(*label),
        _ => {
            let (low, high) = begins.split_at(begins.len() / 2);
            let in_high = code.label();
            // A constant of a jump has a sign, which would be extended.
            code.constant(0, high[0].0.into());
            code.jump(Condition::AboveOrEqual, (EXTRA, 0), in_high);
            choose(code, low);
            code.place(in_high);
            choose(code, high);
        }
    }
}

/// The compiled programs with a filter in its place; nothing if they have no such place.
pub(crate) fn splice(object: &[u8], code: &[u64]) -> Option<Vec<u8>> {
    let file = object::File::parse(object).ok()?;
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok("passes"))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let (begin, size) = section.file_range()?;
    if symbol.address() + symbol.size() > size || symbol.size() < code.len() as u64 * 8 {
        return None;
    }
    let at = (begin + symbol.address()) as usize;
    // The rest of the function behind the code must stay unreachable: so the code is moved to its
    // end, behind instructions without effect.
    let spare = symbol.size() as usize / 8 - code.len();
    let mut spliced = object.to_vec();
    let words = std::iter::repeat_n(&NOTHING, spare).chain(code);
    let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    spliced.get_mut(at..at + bytes.len())?.copy_from_slice(&bytes);
    Some(spliced)
}
