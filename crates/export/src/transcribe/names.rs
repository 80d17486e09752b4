//! Names that are valid in the new trace.

use std::collections::HashSet;

use tompion_ctf::metadata::{Field, Role, Scope};

/// Converts a name to an identifier of TSDL, which readers of CTF 1.8 accept unchanged.
pub(super) fn identifier(name: &str) -> String {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    let mut name: String = name.chars().map(plain).collect();
    if !name.starts_with(|character: char| character.is_ascii_alphabetic() || character == '_') {
        name.insert(0, 'n');
    }
    name
}

/// Names used in a structure of CTF 1.8: of fields, and of the tags before them.
#[derive(Default)]
pub(super) struct Taken {
    names: HashSet<String>,
}

impl Taken {
    /// Collects the names of a CTF 2 structure that are reserved for its fields.
    pub fn new(fields: &[Field]) -> Self {
        Self {
            names: fields
                .iter()
                .filter(|field| identifier(&field.name) == field.name)
                .map(|field| field.name.clone())
                .collect(),
        }
    }

    /// Returns a unique name for a field or a tag.
    pub fn name(&mut self, wanted: &str, is_field: bool, scope: Option<Scope>) -> String {
        let own = is_field && identifier(wanted) == wanted;
        if own {
            self.names.remove(wanted);
        }
        let mut name = identifier(wanted);
        while self.clashes(&name, scope) {
            name.push('_');
        }
        self.names.insert(name.clone());
        name
    }

    /// Whether another field has the name, apart from a `_` that babeltrace2 ignores, or the name
    /// has a special meaning.
    fn clashes(&self, name: &str, scope: Option<Scope>) -> bool {
        let twin = format!("_{name}");
        let without = name.strip_prefix('_').is_some_and(|name| self.names.contains(name));
        let means = scope.is_some_and(|scope| Role::of_name(scope, name).is_some());
        self.names.contains(name) || self.names.contains(&twin) || without || means
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tompion_ctf::metadata::Type;

    #[test]
    fn names_become_unique_identifiers() {
        let fields: Vec<Field> = ["a", "a b", "_a", "a_b", "é", "content_size", "9"]
            .map(|name| Field::new(name, Type::STRING))
            .into();
        let mut taken = Taken::new(&fields);
        let names: Vec<String> =
            fields.iter().map(|field| taken.name(&field.name, true, Some(Scope::PacketContext))).collect();
        assert_eq!(names[1], "a_b_");
        assert_eq!((names[3].as_str(), names[5].as_str(), names[6].as_str()), ("a_b", "content_size_", "n9"));
        let all: HashSet<&String> = names.iter().collect();
        assert_eq!(all.len(), names.len());
    }
}
