//! Random numbers, the same in every run.

/// Xorshift64 generator. Its seed must not be 0.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below a limit; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// Returns an index below a length; 0 if that is 0.
    ///
    /// It has the high bits of the number: the low ones of two numbers in a row have much in
    /// common. A length has 32 bits at most.
    pub fn index(&mut self, len: usize) -> usize {
        (((self.number() >> 32) * len.max(1) as u64) >> 32) as usize
    }

    /// Returns one of the choices.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Changes, cuts, duplicates or inserts a few bytes; `special` are bytes to insert. Some bytes
    /// are left.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, special: &[u8]) {
        for _ in 0..=self.index(4) {
            let place = self.index(bytes.len());
            let special = self.pick(special);
            match self.index(9) {
                0 | 1 => bytes[place..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (self.0 & 7)),
                2 | 3 => bytes[place..].iter_mut().take(1).for_each(|byte| *byte = special),
                4 => bytes[place..].iter_mut().take(4).for_each(|byte| *byte = special),
                5 => bytes.truncate(place.max(8)),
                6 => bytes.insert(place, special),
                7 => drop(bytes.drain(place..bytes.len().min(place + 7))),
                _ => {
                    let piece = bytes[place..bytes.len().min(place + 40)].to_vec();
                    let to = self.index(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
            if bytes.is_empty() {
                bytes.push(special);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_limits_and_reach_them() {
        let mut random = Random(7);
        let mut seen = [[0; 5]; 2];
        for _ in 0..5000 {
            seen[0][random.below(5) as usize] += 1;
            seen[1][random.index(5)] += 1;
        }
        assert!(seen.as_flattened().iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!((random.below(0), random.index(0)), (0, 0));
    }

    #[test]
    fn mutations_leave_bytes() {
        let mut random = Random(1);
        for _ in 0..2000 {
            let mut bytes = b"0123456789".to_vec();
            random.mutate(&mut bytes, &[0xff]);
            assert!(!bytes.is_empty() && bytes.len() < 500, "{bytes:?}");
        }
    }
}
