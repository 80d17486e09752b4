//! Changes of triggers that other programs ask for.

use tompion_triggers::Trigger;

/// Change of a recording's triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerChange {
    /// Texts of triggers to remove; all without a list.
    pub remove: Option<Vec<String>>,
    /// Triggers to add.
    pub add: Vec<Trigger>,
}

/// Reason why triggers can't be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The recording has no trigger of this text.
    Unknown(String),
    /// A trigger can't be, or all of them together.
    Invalid {
        /// The trigger; empty if it is none alone.
        trigger: String,
        /// Reason.
        problem: String,
    },
}

impl TriggerChange {
    /// Returns the triggers behind the change, given those before it. Spaces between words make no
    /// difference in a text. Each text removes one trigger.
    ///
    /// # Errors
    /// A trigger that is to be removed is not there.
    pub fn apply_to(&self, before: Vec<Trigger>) -> Result<Vec<Trigger>, ChangeError> {
        let Some(remove) = &self.remove else { return Ok(self.add.clone()) };
        let mut triggers = before;
        for text in remove {
            let same = text.parse::<Trigger>().map_or_else(|_| text.clone(), |trigger| trigger.text);
            let index = triggers.iter().position(|trigger| trigger.text == same);
            triggers.remove(index.ok_or_else(|| ChangeError::Unknown(text.clone()))?);
        }
        triggers.extend(self.add.iter().cloned());
        Ok(triggers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_removed_by_their_texts_and_added_behind_the_others() {
        let parse =
            |texts: &[&str]| -> Vec<Trigger> { texts.iter().map(|text| text.parse().expect(text)).collect() };
        let before = || parse(&["killed -> notify", "loss -> notify", "killed -> notify"]);
        let change = |remove: Option<&[&str]>, add: &[&str]| {
            let remove = remove.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
            TriggerChange { remove, add: parse(add) }.apply_to(before())
        };
        assert_eq!(change(Some(&[]), &["loss -> stop"]), Ok([before(), parse(&["loss -> stop"])].concat()));
        assert_eq!(change(None, &["loss -> stop"]), Ok(parse(&["loss -> stop"])));
        assert_eq!(
            change(Some(&["killed  ->  notify"]), &[]),
            Ok(parse(&["loss -> notify", "killed -> notify"]))
        );
        assert_eq!(change(Some(&["fill"]), &[]), Err(ChangeError::Unknown("fill".into())));
        let twice = change(Some(&["loss -> notify", "loss -> notify"]), &[]);
        assert_eq!(twice, Err(ChangeError::Unknown("loss -> notify".into())));
    }
}
