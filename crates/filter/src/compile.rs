//! Compiles an [`Expression`] to a [`Program`].

use tompion_schema::Label;

use crate::MAX_PROGRAM;
use crate::bytes::{self, ProgramError};
use crate::conditions::Conditions;
use crate::error::{FilterError, Span};
use crate::expression::{Binary, Expression, Node, Unary};
use crate::name::Name;
use crate::pattern::{Pattern, Test};
use crate::program::{self, Op, Operand, Program, TextTest};
use crate::schema::{Found, Kind, Place, Schema};
use crate::types::check;
use crate::value::{Comparison, Value};

type Result<T> = std::result::Result<T, FilterError>;

/// Binds a filter to the events of a schema, and checks that operators fit their operands.
///
/// A name that the schema does not have is not an error: the filter may be used for many kinds of
/// events.
pub fn compile(expression: &Expression, schema: &dyn Schema) -> Result<Program> {
    check(expression, &|name| schema.find(name))?;
    let too_large = |error: ProgramError| too_large(expression, &error);
    generate(expression).bind(schema).map_err(too_large)
}

/// Compiles a program that looks up every name for each event. Only literals are checked.
pub fn compile_unbound(expression: &Expression) -> Result<Program> {
    check(expression, &|_| Found { place: Place::ByName, kind: Kind::Any })?;
    let program = generate(expression);
    bytes::check_size(&program).map_err(|error| too_large(expression, &error))?;
    Ok(program)
}

fn too_large(expression: &Expression, error: &ProgramError) -> FilterError {
    let at = Span::between(0, expression.text.len());
    FilterError::new(
        &expression.text,
        at,
        format!("a filter whose program has at most {MAX_PROGRAM} bytes"),
        error.to_string(),
    )
}

impl Program {
    /// Binds a program to the events of a schema: resolves where each operand's values are, and
    /// converts labels to numbers. A mismatch becomes unknown, and a missing label becomes false;
    /// [`compile`] refuses both.
    ///
    /// # Errors
    ///
    /// [`ProgramError::TooLarge`] if labels expand to too many ranges of numbers.
    pub fn bind(&self, schema: &dyn Schema) -> std::result::Result<Program, ProgramError> {
        let mut bound = self.clone();
        let found: Vec<_> = self.operands.iter().map(|operand| schema.find(&operand.name)).collect();
        for (operand, found) in bound.operands.iter_mut().zip(&found) {
            operand.place = if found.place.is_sound() { found.place } else { Place::Absent };
        }
        for op in &mut bound.ops {
            let Op::Text { operand, test, begin, length } = *op else { continue };
            let Some(Found { kind: Kind::Enumeration(labels), .. }) = found.get(usize::from(operand)) else {
                continue;
            };
            let literal = self.literal(begin, length);
            let ranges = ranges(labels, &|label| test.takes(literal, label.as_bytes()));
            let (Ok(begin), Ok(count)) = (bound.ranges.len().try_into(), ranges.len().try_into()) else {
                return Err(ProgramError::TooLarge);
            };
            bound.ranges.extend(ranges);
            *op = Op::Within { operand, begin, count };
        }
        bytes::check_size(&bound)?;
        bound.conditions = Conditions::of(&bound);
        Ok(bound)
    }
}

/// Returns the ranges of numbers of the wanted labels: sorted, without overlaps, and within the
/// range of integers.
fn ranges(labels: &[Label], wanted: &dyn Fn(&str) -> bool) -> Vec<(i128, i128)> {
    let within = |label: &Label| (label.low.max(i64::MIN.into()), label.high.min(u64::MAX.into()));
    let wanted = labels.iter().filter(|label| wanted(&label.name)).map(within);
    let mut all: Vec<_> = wanted.filter(|(low, high)| low <= high).collect();
    all.sort_unstable();
    let mut merged: Vec<(i128, i128)> = Vec::new();
    for (low, high) in all {
        match merged.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// Generates the program of an expression, with unbound operands.
fn generate(expression: &Expression) -> Program {
    let operand = |(index, name): (usize, &Name)| Operand { name: name.clone(), place: Place::ByName, index };
    let operands = expression.names.iter().enumerate().map(operand).collect();
    let mut generator =
        Generator { program: Program { operands, ..Program::default() }, pending: Vec::new() };
    for (node, _) in &expression.nodes {
        generator.node(node);
    }
    let mut program = generator.program;
    program.height = bytes::height(&program.ops).unwrap_or(crate::MAX_STACK);
    program.chain = program::chain(&program.ops);
    program
}

struct Generator<'a> {
    program: Program,
    /// Items on the stack at this point.
    pending: Vec<Item<'a>>,
}

/// Value that the program has on its stack, or a text, which is never on it.
enum Item<'a> {
    Value,
    /// Operand with this index, loaded by the last operation.
    Operand(u8),
    Text(&'a Pattern),
    /// Left side of `&&` or `||`, with the index of its shortcut.
    Left(usize),
}

impl<'a> Generator<'a> {
    fn node(&mut self, node: &'a Node) {
        let ops = &mut self.program.ops;
        let item = match node {
            Node::Number(value) => {
                ops.push(Op::Push(*value));
                Item::Value
            }
            Node::Text(pattern) => Item::Text(pattern),
            Node::Name(index) => {
                let operand = *index as u8;
                ops.push(Op::Load(operand));
                Item::Operand(operand)
            }
            Node::Between(logic) => {
                self.pending.pop();
                ops.push(Op::Shortcut { logic: *logic, to: 0 });
                Item::Left(ops.len() - 1)
            }
            Node::Unary(unary) => {
                self.pending.pop();
                match ops.last_mut() {
                    Some(Op::Push(value)) if unary.apply(*value) != Value::UNKNOWN => {
                        *value = unary.apply(*value)
                    }
                    _ => ops.push(Op::Unary(*unary)),
                }
                Item::Value
            }
            Node::Binary(binary) => {
                let right = self.pending.pop();
                let left = self.pending.pop();
                if let (Some(left), Some(right)) = (left, right) {
                    self.binary(*binary, &left, &right);
                }
                Item::Value
            }
        };
        self.pending.push(item);
    }

    fn binary(&mut self, binary: Binary, left: &Item<'_>, right: &Item<'_>) {
        match binary {
            Binary::Logic(logic) => {
                self.program.ops.push(Op::Combine(logic));
                let end = self.program.ops.len() as u16;
                let shortcut = match left {
                    Item::Left(index) => self.program.ops.get_mut(*index),
                    _ => None,
                };
                if let Some(Op::Shortcut { to, .. }) = shortcut {
                    *to = end;
                }
            }
            Binary::Comparison(comparison) => self.comparison(comparison, left, right),
            Binary::Arithmetic(arithmetic) => {
                let folded = match self.program.ops.as_slice() {
                    [.., Op::Push(left), Op::Push(right)] => arithmetic.apply(*left, *right),
                    _ => Value::UNKNOWN,
                };
                let op = if folded == Value::UNKNOWN { Op::Arithmetic(arithmetic) } else { Op::Push(folded) };
                self.replace(if folded == Value::UNKNOWN { 0 } else { 2 }, op);
            }
        }
    }

    /// Replaces the last operations by another one.
    fn replace(&mut self, count: usize, op: Op) {
        let rest = self.program.ops.len().saturating_sub(count);
        self.program.ops.truncate(rest);
        self.program.ops.push(op);
    }

    fn comparison(&mut self, comparison: Comparison, left: &Item<'_>, right: &Item<'_>) {
        let ops = self.program.ops.as_slice();
        let (count, op) = match (left, right, ops) {
            (Item::Operand(operand), Item::Text(pattern), _)
            | (Item::Text(pattern), Item::Operand(operand), _) => (1, self.text(*operand, pattern)),
            (Item::Operand(left), Item::Operand(right), _) if is_equality(comparison) => {
                (2, Op::Same { left: *left, right: *right })
            }
            (Item::Operand(operand), _, [.., Op::Load(_), Op::Push(literal)]) => {
                let op = Op::CompareWith { operand: *operand, comparison, literal: *literal };
                return self.replace(2, op);
            }
            (_, Item::Operand(operand), [.., Op::Push(literal), Op::Load(_)]) => {
                let comparison = comparison.mirrored();
                return self.replace(2, Op::CompareWith { operand: *operand, comparison, literal: *literal });
            }
            (_, _, [.., Op::Push(left), Op::Push(right)]) => {
                let value = comparison.apply(*left, *right);
                return self.replace(2, Op::Push(value));
            }
            _ => return self.replace(0, Op::Compare(comparison)),
        };
        self.replace(count, op);
        if comparison == Comparison::NotEqual {
            self.program.ops.push(Op::Unary(Unary::Not));
        }
    }

    fn text(&mut self, operand: u8, pattern: &Pattern) -> Op {
        let (test, bytes) = match pattern.test() {
            Test::Is(bytes) => (TextTest::Is, bytes),
            Test::Begins(bytes) => (TextTest::Begins, bytes),
            Test::Matches(bytes) => (TextTest::Matches, bytes),
        };
        // Both are limited by the maximum length of a filter's text.
        let (begin, length) = (self.program.texts.len() as u16, bytes.len() as u8);
        self.program.texts.extend(bytes);
        Op::Text { operand, test, begin, length }
    }
}

const fn is_equality(comparison: Comparison) -> bool {
    matches!(comparison, Comparison::Equal | Comparison::NotEqual)
}
