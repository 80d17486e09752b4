//! Fast hash maps with small integer keys. A lookup in a standard map for each event takes as long
//! as all other processing of the event.
//!
//! Traces are untrusted, and their keys could be chosen to collide. So each process uses a random
//! secret.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Map with integer keys.
pub type QuickMap<K, V> = HashMap<K, V, Quick>;
/// Set of integers.
pub type QuickSet<K> = HashSet<K, Quick>;

/// Multiplier: odd, with as many ones as zeros, from the digits of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Factory of hashers.
#[derive(Clone, Copy, Debug)]
pub struct Quick(u64);

impl Default for Quick {
    fn default() -> Self {
        static SECRET: OnceLock<u64> = OnceLock::new();
        Self(*SECRET.get_or_init(|| RandomState::new().hash_one(FACTOR)))
    }
}

impl BuildHasher for Quick {
    type Hasher = Hash;

    fn build_hasher(&self) -> Hash {
        Hash(self.0)
    }
}

/// Hasher.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Hash {
    fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        // Both halves are combined: the lower one does not depend on the number's upper bits.
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }
}

impl Hasher for Hash {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.add(u64::from_le_bytes(word));
        }
        self.add(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_spread() {
        let mut low = HashSet::new();
        let mut high = HashSet::new();
        let quick = Quick::default();
        for number in 0..4096i32 {
            let hash = quick.hash_one((3u16, number << 12));
            low.insert(hash & 0xfff);
            high.insert(hash >> 52);
        }
        // If as many keys are placed at random, 63 % of the places are used.
        assert!(low.len() > 2000 && high.len() > 2000, "{} {}", low.len(), high.len());
    }

    #[test]
    fn a_map_finds_what_was_put_into_it() {
        let map: QuickMap<_, _> = (0..1000i64).map(|number| ((number, "name"), number)).collect();
        assert!((0..1000).all(|number| map.get(&(number, "name")) == Some(&number)));
        assert_eq!(map.get(&(5, "another")), None);
    }
}
