//! Columns of a block in the file: like values stand together, so that deflate finds more to
//! shorten than in rows.
//!
//! ```text
//! sizes of the first five columns                              varints
//! heads │ begins │ durations │ labels │ extras │ counts, values
//! ```
//!
//! Blocks in memory have rows ([`crate::entry`]): a lane that is being filled has one place to
//! write to instead of six.

use crate::entry::{MERGED, STYLE_MASK, read_number, write_number};
use crate::slice_kind;

/// Number of columns with a stored size; the last column takes the rest.
const SIZED: usize = 5;
/// Number of varints that each entry has: begin, duration, label, extra.
const NUMBERS: usize = 4;
/// Bytes of the values of a single point of a counter, and of merged points.
const VALUE: usize = 8;
const VALUES: usize = 3 * VALUE;

/// Returns the columns of valid rows.
pub fn split(rows: &[u8]) -> Vec<u8> {
    let mut columns: [Vec<u8>; SIZED + 1] = Default::default();
    let [heads, others @ ..] = &mut columns;
    let mut rest = rows;
    while let Some((&head, behind)) = rest.split_first() {
        heads.push(head);
        rest = behind;
        for (place, column) in others.iter_mut().enumerate() {
            let size = if place < NUMBERS { number_size(rest) } else { rest_size(head, rest) };
            let (bytes, behind) = rest.split_at(size.min(rest.len()));
            column.extend_from_slice(bytes);
            rest = behind;
        }
    }
    let mut bytes = Vec::with_capacity(rows.len() + 2 * SIZED);
    columns.iter().take(SIZED).for_each(|column| write_number(column.len() as u64, &mut bytes));
    columns.iter().for_each(|column| bytes.extend_from_slice(column));
    bytes
}

/// Returns the rows of columns; `None` if the columns are invalid.
pub fn join(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sizes = [0; SIZED];
    for size in &mut sizes {
        *size = usize::try_from(read_number(&mut bytes)?).ok()?;
    }
    let mut rows = Vec::with_capacity(bytes.len());
    let mut columns = [&[][..]; SIZED + 1];
    for (column, size) in columns.iter_mut().zip(sizes) {
        (*column, bytes) = bytes.split_at_checked(size)?;
    }
    let [heads, numbers @ .., more] = &mut columns;
    *more = bytes;
    for &head in *heads {
        rows.push(head);
        for column in numbers.iter_mut() {
            take(column, number_size(column), &mut rows)?;
        }
        take(more, rest_size(head, more), &mut rows)?;
    }
    Some(rows)
}

/// Moves the first bytes of a column to the rows.
fn take(column: &mut &[u8], size: usize, rows: &mut Vec<u8>) -> Option<()> {
    let (bytes, rest) = column.split_at_checked(size)?;
    rows.extend_from_slice(bytes);
    *column = rest;
    Some(())
}

/// Returns the size of the varint at the begin of some bytes, its last byte included.
fn number_size(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1
}

/// Returns the size of an entry's count and values.
fn rest_size(head: u8, bytes: &[u8]) -> usize {
    let is_merged = head & MERGED != 0;
    let count = if is_merged { number_size(bytes) } else { 0 };
    match head & STYLE_MASK == slice_kind::COUNTER {
        true if is_merged => count + VALUES,
        true => count + VALUE,
        false => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Values};
    use crate::extra::Extra;

    fn rows() -> Vec<u8> {
        let (mut rows, mut last) = (Vec::new(), 0);
        for number in 0..1000i64 {
            let style = if number % 5 == 0 { slice_kind::COUNTER } else { slice_kind::RUNNING };
            let extra = if number % 5 == 0 { Extra::None } else { Extra::Cpu(number as u32 % 9) };
            let (begin, count) = (number * 777, 1 + number as u64 % 3 * 500);
            let values = Values { last: 2.5, min: number as f64, max: 1e9 };
            let label = number as u32 * 31;
            Entry { begin, end: begin + number * number, style, seen: 3, label, extra, count, values }
                .write(&mut last, &mut rows);
        }
        rows
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let rows = rows();
        let columns = split(&rows);
        assert!(columns.len() <= rows.len() + 20);
        assert_ne!(columns, rows);
        assert_eq!(join(&columns), Some(rows));
        assert_eq!(join(&split(&[])), Some(Vec::new()));
    }

    #[test]
    fn columns_that_are_none_of_ours_are_invalid() {
        let whole = split(&rows());
        for size in 0..whole.len() {
            assert_eq!(join(&whole[..size]), None, "the first {size} bytes");
        }
        assert_eq!(join(&[0xff; 64]), None);
    }
}
