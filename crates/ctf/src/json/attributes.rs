//! Attributes of field classes, carried from one description to another by their position.
//!
//! They mean nothing to Tompion. A position is a path of steps: a member by its name, an option by
//! its number, the property that holds a field class.

use std::collections::HashMap;

use super::value::Json;
use crate::metadata::{FieldAttributes, Scope};

/// Maximum size of all field attributes of a trace, in bytes: aliases can repeat them.
pub(super) const MAX_SIZE: usize = 1 << 20;

/// Properties that hold a field class.
const HOLDERS: [&str; 2] = ["field-class", "element-field-class"];
/// Properties that hold a list of such objects.
const LISTS: [&str; 2] = ["member-classes", "options"];

/// Walk through a field class that was built, so that its nesting and size have limits.
pub(super) struct Collector<'a> {
    /// Named field classes.
    pub aliases: &'a HashMap<String, Json>,
    pub scope: Scope,
    /// Bytes that may still be collected.
    pub room: usize,
    /// Whether that was too little.
    pub is_cut: bool,
    pub found: Vec<FieldAttributes>,
}

impl Collector<'_> {
    /// Collects the attributes of a field class, or of an object that holds one.
    pub fn collect(&mut self, class: &Json, path: &mut Vec<String>) {
        let class = match class {
            Json::Text(name) => self.aliases.get(name).unwrap_or(class),
            other => other,
        };
        let Json::Object(properties) = class else { return };
        for (name, value) in properties {
            match value {
                Json::Object(entries)
                    if matches!(name.as_str(), "attributes" | "user-attributes") && !entries.is_empty() =>
                {
                    self.take(value, path);
                }
                Json::Array(holders) if LISTS.contains(&name.as_str()) => {
                    for (number, holder) in holders.iter().enumerate() {
                        path.push(step(holder, number));
                        self.collect(holder, path);
                        path.pop();
                    }
                }
                _ if HOLDERS.contains(&name.as_str()) => {
                    path.push(name.clone());
                    self.collect(value, path);
                    path.pop();
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, attributes: &Json, path: &[String]) {
        let Ok(attributes) = serde_json::to_string(attributes) else { return };
        let size = attributes.len() + path.iter().map(String::len).sum::<usize>();
        match self.room.checked_sub(size) {
            Some(room) => self.room = room,
            None => return self.is_cut = true,
        }
        self.found.push(FieldAttributes { scope: self.scope, path: path.to_vec(), attributes });
    }
}

/// Adds attributes to the field class of a scope.
pub(super) fn annotate(class: &mut Json, scope: Scope, attributes: &[FieldAttributes]) {
    let of_scope = attributes.iter().filter(|it| it.scope == scope);
    let known = of_scope.map(|it| (it.path.as_slice(), it.attributes.as_str())).collect::<HashMap<_, _>>();
    if !known.is_empty() {
        annotate_at(class, &mut Vec::new(), &known);
    }
}

fn annotate_at(class: &mut Json, path: &mut Vec<String>, known: &HashMap<&[String], &str>) {
    let Json::Object(properties) = class else { return };
    for (name, value) in properties.iter_mut() {
        match value {
            Json::Array(holders) if LISTS.contains(&name.as_str()) => {
                for (number, holder) in holders.iter_mut().enumerate() {
                    path.push(step(holder, number));
                    annotate_at(holder, path, known);
                    path.pop();
                }
            }
            _ if HOLDERS.contains(&name.as_str()) => {
                path.push(name.clone());
                annotate_at(value, path, known);
                path.pop();
            }
            _ => {}
        }
    }
    let attributes = known.get(path.as_slice()).and_then(|text| serde_json::from_str(text).ok());
    properties.extend(attributes.map(|attributes| ("attributes".to_owned(), attributes)));
}

/// Names a member; numbers an option, whose name may be missing or another.
fn step(holder: &Json, number: usize) -> String {
    let Json::Object(properties) = holder else { return number.to_string() };
    let property = |key: &str| properties.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let is_option = property("selector-field-ranges").is_some();
    match property("name") {
        Some(Json::Text(name)) if !is_option => name.clone(),
        _ => number.to_string(),
    }
}
