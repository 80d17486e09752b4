//! Sets of processors, as people, cpusets and masks write them.

use std::{collections::BTreeSet, fmt};

/// Highest number of a processor plus one: more than any kernel is built for (`NR_CPUS` is 8192 at
/// most).
const MOST: u32 = 1 << 16;
/// Bits in a group of a mask.
const GROUP: u32 = 32;

/// A set of processors. Its text is a list: `0-2,5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

/// A text that is no list of processors, and no mask.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected CPUs such as 2-3,5, found `{0}`")]
pub struct NoCpus(String);

impl CpuSet {
    /// A list as people write it, and the kernel in files that end with `_list`; an empty text is
    /// an empty set.
    ///
    /// # Errors
    /// The text has something else, a range that goes down, or a number above 65535.
    pub fn from_list(text: &str) -> Result<Self, NoCpus> {
        let text = text.trim();
        let wrong = || NoCpus(text.to_owned());
        let number =
            |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < MOST).ok_or_else(wrong);
        let mut cpus = BTreeSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }

    /// A mask as the kernel writes it: hexadecimal, in groups of 32 bits with commas between them.
    ///
    /// # Errors
    /// The text is no such mask, or is longer than one of 65536 processors.
    pub fn from_mask(text: &str) -> Result<Self, NoCpus> {
        let wrong = || NoCpus(text.trim().to_owned());
        let mut cpus = BTreeSet::new();
        for (group, place) in text.trim().rsplit(',').zip(0..) {
            let bits = u32::from_str_radix(group, 16).map_err(|_| wrong())?;
            if place >= MOST / GROUP {
                return Err(wrong());
            }
            let set = (0..GROUP).filter(|bit| bits >> bit & 1 == 1);
            cpus.extend(set.map(|bit| place * GROUP + bit));
        }
        Ok(Self(cpus))
    }

    /// Formats the set as a mask, with as many groups as it needs.
    pub fn mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last / GROUP + 1);
        let group = |place: u32| {
            let bits = self.0.range(place * GROUP..(place + 1) * GROUP);
            bits.fold(0u32, |bits, cpu| bits | 1 << (cpu % GROUP))
        };
        let texts: Vec<String> = (0..groups).rev().map(|place| format!("{:08x}", group(place))).collect();
        texts.join(",")
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Returns the CPUs that the other set doesn't have.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns the CPUs that both sets have.
    pub fn shared_with(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (place, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if first == last {
                write!(formatter, "{comma}{first}")?;
            } else {
                write!(formatter, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> String {
        CpuSet::from_list(text).unwrap().to_string()
    }

    #[test]
    fn lists_are_read_and_written() {
        for (text, expected) in [("3,1,2", "1-3"), ("0-1,5\n", "0-1,5"), ("", ""), ("7", "7"), ("1-1,1", "1")]
        {
            assert_eq!(listed(text), expected);
        }
        for wrong in ["a", "1-", "-1", "3-2", "1,,2", "0-4000000000", "65536", "1;2"] {
            let error = CpuSet::from_list(wrong).unwrap_err();
            assert_eq!(error.to_string(), format!("expected CPUs such as 2-3,5, found `{wrong}`"));
        }
    }

    #[test]
    fn masks_are_read_and_written() {
        for (mask, list) in
            [("3", "0-1"), ("00000001,80000000\n", "31-32"), ("0", ""), ("ff,00000000,00000001", "0,64-71")]
        {
            assert_eq!(CpuSet::from_mask(mask).unwrap().to_string(), list);
        }
        for wrong in ["", "x", "1ffffffff", &"1,".repeat(3000)] {
            assert!(CpuSet::from_mask(wrong).is_err(), "{wrong}");
        }
        for list in ["", "0", "31-32", "0,64-71"] {
            assert_eq!(
                CpuSet::from_mask(&CpuSet::from_list(list).unwrap().mask()).unwrap().to_string(),
                list
            );
        }
    }

    #[test]
    fn sets_are_compared() {
        let (some, others) = (CpuSet::from_list("0-3").unwrap(), CpuSet::from_list("2-5").unwrap());
        assert_eq!(some.without(&others).to_string(), "0-1");
        assert_eq!(some.shared_with(&others).to_string(), "2-3");
        assert!(some.without(&some).is_empty() && some.len() == 4);
    }
}
