//! What the parser makes of a text: the grammar's shapes, names not yet looked up.

use super::Position;

/// One thing in a block, a structure or the whole text.
#[derive(Debug)]
pub(super) enum Item {
    /// `trace { … };` and the like.
    Block { kind: String, items: Vec<Item>, at: Position },
    /// `name.name = value;`
    Assign { name: String, value: Value, at: Position },
    /// `name.name := type;`
    Bind { name: String, ty: TypeExpr },
    /// `typealias type := name;`, `typedef type name[2];`
    Aliases { ty: TypeExpr, declarators: Vec<Declarator> },
    /// `struct name { … };` without a field.
    Declare { ty: TypeExpr },
    /// `type name[2], name;`
    Field { ty: TypeExpr, declarators: Vec<Declarator> },
}

/// The right side of `=`.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Number(i128),
    Text(String),
    /// A word, or several with dots between them.
    Word(String),
}

/// A type as it is written.
#[derive(Debug)]
pub(super) struct TypeExpr {
    pub kind: TypeKind,
    pub at: Position,
}

/// The forms of types.
#[derive(Debug)]
pub(super) enum TypeKind {
    /// Words, with single spaces between them.
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

/// `label = 1 ... 4`
#[derive(Debug)]
pub(super) struct Enumerator {
    pub label: String,
    pub range: Option<(i128, i128)>,
}

/// The name of a field or type, and the array lengths behind it.
#[derive(Debug)]
pub(super) struct Declarator {
    pub name: String,
    pub lengths: Vec<Length>,
    pub at: Position,
}

/// What stands between square brackets.
#[derive(Debug)]
pub(super) enum Length {
    Fixed(u64),
    /// A field, with dots.
    Field(String),
}
