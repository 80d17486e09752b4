//! Builds types, as a part of the resolver.

use std::collections::HashSet;

use super::attributes::{alignment, assignments, base, boolean, byte_order, clock_name, encoding, number};
use super::resolver::{Alias, Resolver, Result, wrong};
use super::syntax::{Declarator, Enumerator, Item, Length, TypeExpr, TypeKind};
use super::write::is_keyword;
use super::{Position, parser};
use crate::metadata::{
    Base, Encoding, Enum, Field, Float, Integer, Mapping, Reference, Scope, Selection, Struct, Type, Variant,
};

/// Attributes of integers.
const OF_INTEGERS: [&str; 7] = ["size", "align", "signed", "byte_order", "base", "encoding", "map"];
/// Attributes of floats.
const OF_FLOATS: [&str; 4] = ["exp_dig", "mant_dig", "align", "byte_order"];

/// Prefixes of absolute paths, and the structures they refer to.
const ROOTS: [(&str, Scope); 8] = [
    ("trace.packet.header.", Scope::PacketHeader),
    ("packet.header.", Scope::PacketHeader),
    ("stream.packet.context.", Scope::PacketContext),
    ("packet.context.", Scope::PacketContext),
    ("stream.event.header.", Scope::EventHeader),
    ("stream.event.context.", Scope::StreamEventContext),
    ("event.context.", Scope::EventContext),
    ("event.fields.", Scope::Payload),
];

/// Position where a type is being built: the enclosing structures, and their preceding fields.
pub(super) struct Place {
    /// Outermost structure; `None` for a type that is only declared, whose references are resolved
    /// where it is used.
    root: Option<Scope>,
    frames: Vec<Frame>,
}

/// Structure or variant that is being built.
#[derive(Default)]
struct Frame {
    /// Name in the enclosing frame; the root has none.
    name: String,
    /// Fields so far, which nested fields can refer to.
    names: Vec<String>,
}

impl Place {
    pub fn new(root: Scope) -> Self {
        Self { root: Some(root), frames: Vec::new() }
    }

    /// Creates the position of a type that is only declared.
    pub fn of_declaration() -> Self {
        Self { root: None, frames: Vec::new() }
    }

    /// Resolves a written reference to a field.
    fn reference(&self, written: &str, at: Position) -> Result<Reference> {
        let Some(root) = self.root else {
            return Ok(Reference { scope: Scope::Payload, path: Vec::new() });
        };
        for (prefix, scope) in ROOTS {
            if let Some(rest) = written.strip_prefix(prefix) {
                return Ok(Reference { scope, path: rest.split('.').map(shown_name).collect() });
            }
        }
        let names: Vec<String> = written.split('.').map(shown_name).collect();
        let first = names.first().map_or("", String::as_str);
        for (depth, frame) in self.frames.iter().enumerate().rev() {
            if frame.names.iter().any(|name| name == first) {
                let parents = self.frames.iter().take(depth + 1).skip(1).map(|frame| frame.name.clone());
                return Ok(Reference { scope: root, path: parents.chain(names).collect() });
            }
        }
        wrong(at, format!("no field {written:?} precedes this one"))
    }
}

/// Returns the name that users see, without the `_` that distinguishes it from keywords.
fn shown_name(name: &str) -> String {
    name.strip_prefix('_').unwrap_or(name).into()
}

/// Returns the other written name that is shown in the same way, if there is one.
fn twin(name: &str) -> Option<String> {
    let other = name.strip_prefix('_').map_or_else(|| format!("_{name}"), String::from);
    (shown_name(&other) == shown_name(name)).then_some(other)
}

impl<'a> Resolver<'a> {
    /// Defines the names in a named type with a body, and inside its enum's container.
    fn declare_names(&mut self, ty: &'a TypeExpr, scope: usize) -> Result<()> {
        let name = match &ty.kind {
            TypeKind::Struct { name: Some(name), body: Some(_), .. } => format!("struct {name}"),
            TypeKind::Variant { name: Some(name), body: Some(_), .. } => format!("variant {name}"),
            TypeKind::Enum { name: Some(name), body: Some(_), .. } => format!("enum {name}"),
            _ => return Ok(()),
        };
        self.define(scope, name, Alias { ty, declarator: None, scope })
    }

    /// Builds a type that is only declared, to find what is wrong with it, and defines its names.
    pub fn declare(&mut self, ty: &'a TypeExpr, declarators: &'a [Declarator], scope: usize) -> Result<()> {
        let place = &mut Place::of_declaration();
        let built = self.build(ty, scope, place)?;
        for declarator in declarators {
            self.wrap(built.clone(), declarator, place)?;
            let alias = Alias { ty, declarator: Some(declarator), scope };
            self.define(scope, declarator.name.clone(), alias)?;
        }
        Ok(())
    }

    /// Builds a type at a position.
    pub fn build(&mut self, ty: &'a TypeExpr, scope: usize, place: &mut Place) -> Result<Type> {
        self.declare_names(ty, scope)?;
        self.nested(ty.at, |resolver| match &ty.kind {
            TypeKind::Named(name) if name == "string" => Ok(Type::STRING),
            TypeKind::Named(name) => resolver.named(name, ty.at, scope, place),
            TypeKind::Integer(attributes) => resolver.integer(attributes, ty.at),
            TypeKind::Float(attributes) => resolver.float(attributes, ty.at),
            TypeKind::String(attributes) => resolver.string(attributes),
            TypeKind::Struct { name, body, alignment } => match (body, name) {
                (Some(items), _) => resolver.structure(items, *alignment, (scope, ty.at), place),
                (None, name) => {
                    let name = format!("struct {}", name.as_deref().unwrap_or_default());
                    resolver.named(&name, ty.at, scope, place)
                }
            },
            TypeKind::Variant { selector, .. } => {
                if selector.is_none() && place.root.is_some() {
                    return wrong(ty.at, "a variant without a selector");
                }
                let selector = place.reference(selector.as_deref().unwrap_or_default(), ty.at)?;
                resolver.variant(ty, selector, scope, place)
            }
            TypeKind::Enum { name, container, body } => match (body, name) {
                (Some(labels), _) => {
                    resolver.enumeration(container.as_deref(), labels, (scope, ty.at), place)
                }
                (None, name) => {
                    let name = format!("enum {}", name.as_deref().unwrap_or_default());
                    resolver.named(&name, ty.at, scope, place)
                }
            },
        })
    }

    fn named(&mut self, name: &str, at: Position, scope: usize, place: &mut Place) -> Result<Type> {
        let Some(alias) = self.look_up(scope, name) else {
            return wrong(at, format!("no type has the name `{name}`"));
        };
        let mut ty = self.build(alias.ty, alias.scope, place)?;
        if let (true, Type::Integer(integer)) = (name.ends_with('*'), &mut ty) {
            // Pointers are displayed in hexadecimal, whatever their alias says.
            integer.base = Base::Hexadecimal;
        }
        match alias.declarator {
            Some(declarator) => self.wrap(ty, declarator, place),
            None => Ok(ty),
        }
    }

    fn structure(
        &mut self,
        items: &'a [Item],
        alignment: Option<u64>,
        (scope, at): (usize, Position),
        place: &mut Place,
    ) -> Result<Type> {
        let scope = self.open_scope(scope);
        if place.frames.is_empty() {
            place.frames.push(Frame::default());
        }
        let fields = self.fields(items, scope, place, true)?;
        Ok(Type::Struct(Struct { fields, alignment: self::alignment(alignment.unwrap_or(1), at)? }))
    }

    /// Builds the fields of a structure, or the options of a variant, which cannot refer to each
    /// other.
    fn fields(
        &mut self,
        items: &'a [Item],
        scope: usize,
        place: &mut Place,
        visible: bool,
    ) -> Result<Vec<Field>> {
        let mut fields: Vec<Field> = Vec::new();
        let mut written = HashSet::new();
        for item in items {
            let Item::Field { ty, declarators } = item else {
                self.declaration(item, scope)?;
                continue;
            };
            for declarator in declarators {
                let at = declarator.at;
                let name = shown_name(&declarator.name);
                if !written.insert(declarator.name.as_str()) {
                    return wrong(
                        at,
                        format!("expected one field named `{}`, found another", declarator.name),
                    );
                }
                if twin(&declarator.name).is_some_and(|twin| written.contains(twin.as_str())) {
                    let twins = format!("`{name}` and `_{name}`");
                    self.remarks.add(at, format!("two fields, {twins}, are both shown as {name:?}"));
                }
                if is_keyword(&declarator.name) {
                    let remark = format!("expected a name that is no keyword, found `{}`", declarator.name);
                    self.remarks.add(at, remark);
                }
                place.frames.push(Frame { name: name.clone(), names: Vec::new() });
                let ty = self.build(ty, scope, place);
                place.frames.pop();
                let ty = self.wrap(ty?, declarator, place)?;
                if let Some(frame) = place.frames.last_mut().filter(|_| visible) {
                    frame.names.push(name.clone());
                }
                fields.push(Field { name, ty });
            }
        }
        Ok(fields)
    }

    /// Builds a variant with options given here, or elsewhere under its name.
    fn variant(
        &mut self,
        ty: &'a TypeExpr,
        selector: Reference,
        scope: usize,
        place: &mut Place,
    ) -> Result<Type> {
        let TypeKind::Variant { name, body, .. } = &ty.kind else {
            return wrong(ty.at, "expected a variant");
        };
        if let Some(items) = body {
            let scope = self.open_scope(scope);
            let options = self.fields(items, scope, place, false)?;
            let selection = Selection::Labels(written_names(items));
            return Ok(Type::Variant(Variant { selector, options, selection }));
        }
        let name = format!("variant {}", name.as_deref().unwrap_or_default());
        match self.look_up(scope, &name) {
            Some(alias) => {
                self.nested(ty.at, |resolver| resolver.variant(alias.ty, selector, alias.scope, place))
            }
            None => wrong(ty.at, format!("no type has the name `{name}`")),
        }
    }

    fn integer(&mut self, attributes: &[Item], at: Position) -> Result<Type> {
        let mut integer = Integer::unsigned(0, self.trace.byte_order);
        let (mut alignment, mut has_size) = (None, false);
        for (name, value, at) in assignments(attributes, &OF_INTEGERS, &mut self.remarks)? {
            match name {
                "signed" => integer.signed = boolean(value, at)?,
                "size" => (integer.bits, has_size) = (number(value, at)?, true),
                "align" => alignment = Some(self::alignment(number(value, at)?, at)?),
                "byte_order" => integer.byte_order = byte_order(value, Some(self.trace.byte_order), at)?,
                "base" => integer.base = base(value, at)?,
                "encoding" => integer.encoding = encoding(value, at)?,
                "map" => {
                    let clock = clock_name(value, at)?;
                    self.mapped.entry(clock.clone()).or_insert(at);
                    integer.clock = Some(clock);
                }
                _ => {}
            }
        }
        if !has_size {
            return wrong(at, "expected the size of an integer in bits, found none");
        }
        if !(1..=64).contains(&integer.bits) {
            return wrong(at, format!("expected an integer of 1 to 64 bits, found {}", integer.bits));
        }
        integer.alignment = alignment.unwrap_or(if integer.bits % 8 == 0 { 8 } else { 1 });
        Ok(Type::Integer(integer))
    }

    fn float(&mut self, attributes: &[Item], at: Position) -> Result<Type> {
        let mut float = Float::new(0, self.trace.byte_order);
        let (mut exponent, mut mantissa) = (0u32, 0u32);
        for (name, value, at) in assignments(attributes, &OF_FLOATS, &mut self.remarks)? {
            match name {
                "exp_dig" => exponent = number(value, at)?,
                "mant_dig" => mantissa = number(value, at)?,
                "align" => float.alignment = self::alignment(number(value, at)?, at)?,
                "byte_order" => float.byte_order = byte_order(value, Some(self.trace.byte_order), at)?,
                _ => {}
            }
        }
        float.bits = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                let found = format!("found {exponent} and {mantissa}");
                return wrong(at, format!("expected 8 and 24 or 11 and 53 digits of a float, {found}"));
            }
        };
        Ok(Type::Float(float))
    }

    fn enumeration(
        &mut self,
        container: Option<&'a TypeExpr>,
        labels: &[Enumerator],
        (scope, at): (usize, Position),
        place: &mut Place,
    ) -> Result<Type> {
        let container = match container {
            Some(container) => self.build(container, scope, place)?,
            None => self.named("int", at, scope, place)?,
        };
        if labels.is_empty() {
            return wrong(at, "expected a label of the enumeration, found none");
        }
        let Type::Integer(integer) = container else {
            return wrong(at, "expected an integer as the container of an enumeration");
        };
        let mut next = 0;
        let mut mappings = Vec::with_capacity(labels.len());
        for label in labels {
            let (low, high) = label.range.unwrap_or((next, next));
            if low > high {
                return wrong(at, format!("label {:?} has the empty range {low} ... {high}", label.label));
            }
            next = high + 1;
            mappings.push(Mapping { label: label.label.clone(), low, high });
        }
        Ok(Type::Enum(Enum { integer, mappings }))
    }
    fn string(&mut self, attributes: &[Item]) -> Result<Type> {
        let mut found = Encoding::Utf8;
        for (_, value, at) in assignments(attributes, &["encoding"], &mut self.remarks)? {
            found = encoding(value, at)?;
        }
        Ok(Type::String(found))
    }

    /// Wraps a type in arrays; the first length is the outermost.
    fn wrap(&self, ty: Type, declarator: &Declarator, place: &Place) -> Result<Type> {
        let mut ty = ty;
        if declarator.lengths.len() > parser::MAX_DEPTH {
            return wrong(declarator.at, "arrays of too many dimensions");
        }
        for length in declarator.lengths.iter().rev() {
            ty = match length {
                Length::Fixed(length) => ty.array(*length),
                Length::Field(path) => match path.strip_prefix("env.") {
                    Some(name) if place.root.is_some() => ty.array(self.length_of(name, declarator.at)?),
                    _ => ty.sequence(place.reference(path, declarator.at)?),
                },
            };
        }
        Ok(ty)
    }

    /// Returns the length of an array that the environment states.
    fn length_of(&self, name: &str, at: Position) -> Result<u64> {
        let mut values = self.stated.iter().filter(|(key, _)| *key == name).map(|(_, value)| *value);
        let Some(value) = values.next() else {
            return wrong(at, format!("expected a value {name:?} in the environment, found none"));
        };
        if values.any(|other| other != value) {
            return wrong(at, format!("expected one value {name:?} in the environment, found several"));
        }
        number(value, at)
    }
}

/// Returns the names of fields as they are written.
fn written_names(items: &[Item]) -> Vec<String> {
    let declarators = items.iter().filter_map(|item| match item {
        Item::Field { declarators, .. } => Some(declarators),
        _ => None,
    });
    declarators.flatten().map(|declarator| declarator.name.clone()).collect()
}
