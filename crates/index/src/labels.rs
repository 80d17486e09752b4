//! Interned labels of entries and tracks.

use std::collections::HashMap;
use std::sync::Arc;

use tompion_analysis::quick::QuickMap;

/// Maximum number of labels, and maximum bytes of all of them; later ones become `…`.
const MAX_LABELS: usize = 1 << 20;
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Maximum number of texts that are found by address.
const MAX_SHARED: usize = 1 << 14;
/// Maximum length of a label in bytes.
const MAX_LABEL_BYTES: usize = 1024;

/// Labels by number. Number 0 is none.
#[derive(Clone, Debug)]
pub struct Labels {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
    /// Numbers of texts by address. The texts are held, so that no other text gets their address.
    shared: QuickMap<usize, (Arc<str>, u32)>,
}

impl Default for Labels {
    fn default() -> Self {
        let mut labels =
            Self { texts: Vec::new(), numbers: HashMap::new(), bytes: 0, shared: QuickMap::default() };
        labels.add("");
        labels.add("…");
        labels
    }
}

impl Labels {
    /// Makes labels from texts in the order of their numbers; `None` if they are invalid.
    pub fn of(texts: Vec<String>) -> Option<Self> {
        let mut labels =
            Self { texts: Vec::new(), numbers: HashMap::new(), bytes: 0, shared: QuickMap::default() };
        for text in &texts {
            labels.add(text);
        }
        (labels.texts.len() == texts.len() && texts.len() >= 2).then_some(labels)
    }

    /// Returns the number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        if text.len() > MAX_LABEL_BYTES {
            let end = (0..=MAX_LABEL_BYTES).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            let short = format!("{}…", text.get(..end).unwrap_or_default());
            return self.numbers.get(short.as_str()).copied().unwrap_or_else(|| self.add(&short));
        }
        self.add(text)
    }

    /// Returns the number of a repeated text, found by its address.
    pub fn shared(&mut self, text: &Arc<str>) -> u32 {
        let place = text.as_ptr().addr();
        if let Some((_, number)) = self.shared.get(&place).filter(|(known, _)| Arc::ptr_eq(known, text)) {
            return *number;
        }
        let number = self.number(text);
        if self.shared.len() < MAX_SHARED {
            self.shared.insert(place, (text.clone(), number));
        }
        number
    }

    fn add(&mut self, text: &str) -> u32 {
        if self.texts.len() >= MAX_LABELS || self.bytes + text.len() > MAX_TOTAL_BYTES {
            return 1;
        }
        let (number, text): (_, Arc<str>) = (self.texts.len() as u32, text.into());
        self.bytes += text.len();
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// Returns the text of a number.
    pub fn text(&self, number: u32) -> &Arc<str> {
        // There are at least two.
        self.texts.get(number as usize).unwrap_or_else(|| &self.texts[0])
    }

    /// Returns all texts in the order of their numbers.
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }
}
