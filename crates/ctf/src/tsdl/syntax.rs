//! Syntax tree, with unresolved names.

use super::Position;

/// Item of a block, a structure or the whole text.
#[derive(Debug)]
pub(super) enum Item {
    /// Block: `trace { … };` and similar.
    Block { kind: String, items: Vec<Item>, at: Position },
    /// Assignment: `name.name = value;`.
    Assign { name: String, value: Value, at: Position },
    /// Binding of a type: `name.name := type;`.
    Bind { name: String, ty: TypeExpr },
    /// Aliases: `typealias type := name;`, `typedef type name[2];`.
    Aliases { ty: TypeExpr, declarators: Vec<Declarator> },
    /// Declaration without a field: `struct name { … };`.
    Declare { ty: TypeExpr },
    /// Fields: `type name[2], name;`.
    Field { ty: TypeExpr, declarators: Vec<Declarator> },
}

/// Right side of `=`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(i128),
    Text(String),
    /// Word, or several joined by dots.
    Word(String),
}

/// Type expression.
#[derive(Debug)]
pub(super) struct TypeExpr {
    pub kind: TypeKind,
    pub at: Position,
}

/// Kind of a type expression.
#[derive(Debug)]
pub(super) enum TypeKind {
    /// Words of a type's name, joined by single spaces.
    Named(String),
    Integer(Vec<Item>),
    Float(Vec<Item>),
    String(Vec<Item>),
    Struct {
        name: Option<String>,
        body: Option<Vec<Item>>,
        alignment: Option<u64>,
    },
    Variant {
        name: Option<String>,
        selector: Option<String>,
        body: Option<Vec<Item>>,
    },
    Enum {
        name: Option<String>,
        container: Option<Box<TypeExpr>>,
        body: Option<Vec<Enumerator>>,
    },
}

/// Enumerator: `label = 1 ... 4`.
#[derive(Debug)]
pub(super) struct Enumerator {
    pub label: String,
    pub range: Option<(i128, i128)>,
}

/// Name of a field or type, and the array lengths after it.
#[derive(Debug)]
pub(super) struct Declarator {
    pub name: String,
    pub lengths: Vec<Length>,
    pub at: Position,
}

/// Length between square brackets.
#[derive(Debug)]
pub(super) enum Length {
    Fixed(u64),
    /// Path of a field, joined by dots.
    Field(String),
}
