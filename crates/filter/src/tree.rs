//! Programs as trees, for translation to other forms, such as machine code.

use crate::expression::{Logic, Unary};
use crate::program::{Op, Program, TextTest};
use crate::value::{Arithmetic, Comparison, Value};

/// Part of a filter. Operands are numbers of [`Program::operands`].
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// Number literal.
    Literal(Value),
    /// Operand with this number.
    Operand(usize),
    /// Logical negation, `!`.
    Not(Box<Tree>),
    /// Bitwise complement, `~`.
    Complement(Box<Tree>),
    /// Arithmetic negation, unary `-`.
    Negate(Box<Tree>),
    /// Comparison of two numbers.
    Compare(Comparison, Box<Tree>, Box<Tree>),
    /// Arithmetic or bit operation on two numbers.
    Arithmetic(Arithmetic, Box<Tree>, Box<Tree>),
    /// Conjunction `&&` in Kleene's three-valued logic.
    And(Box<Tree>, Box<Tree>),
    /// Disjunction `||` in Kleene's three-valued logic.
    Or(Box<Tree>, Box<Tree>),
    /// Test whether the text of an operand equals a literal, or begins with it.
    Text {
        /// Number of the operand.
        operand: usize,
        /// Literal, without a NUL.
        literal: Vec<u8>,
        /// Whether the text only needs to begin with the literal.
        begins: bool,
    },
    /// Test whether the text of an operand matches a pattern with wildcards.
    Pattern(usize),
    /// Test whether two operands are the same text, or the same number.
    Same(usize, usize),
    /// Test whether an operand's integer is in one of these inclusive ranges.
    Within(usize, Vec<(i128, i128)>),
}

impl Program {
    /// Converts the program to a tree with the same verdict as [`Program::evaluate`].
    pub fn tree(&self) -> Option<Tree> {
        let mut stack: Vec<Box<Tree>> = Vec::new();
        for op in &self.ops {
            let tree = match *op {
                // A shortcut only skips parts that can't change the result.
                Op::Shortcut { .. } => continue,
                Op::Push(value) => Tree::Literal(value),
                Op::Load(operand) => Tree::Operand(operand.into()),
                Op::Unary(unary) => {
                    let inner = stack.pop()?;
                    match unary {
                        Unary::Not => Tree::Not(inner),
                        Unary::Complement => Tree::Complement(inner),
                        Unary::Negate => Tree::Negate(inner),
                    }
                }
                Op::CompareWith { operand, comparison, literal } => {
                    let operand = Box::new(Tree::Operand(operand.into()));
                    Tree::Compare(comparison, operand, Box::new(Tree::Literal(literal)))
                }
                Op::Compare(_) | Op::Arithmetic(_) | Op::Combine(_) => {
                    let (right, left) = (stack.pop()?, stack.pop()?);
                    match *op {
                        Op::Compare(comparison) => Tree::Compare(comparison, left, right),
                        Op::Arithmetic(arithmetic) => Tree::Arithmetic(arithmetic, left, right),
                        Op::Combine(Logic::And) => Tree::And(left, right),
                        _ => Tree::Or(left, right),
                    }
                }
                Op::Text { operand, test, begin, length } => {
                    let literal = self.literal(begin, length).to_vec();
                    match test {
                        TextTest::Matches => Tree::Pattern(operand.into()),
                        _ => {
                            let begins = test == TextTest::Begins;
                            Tree::Text { operand: operand.into(), literal, begins }
                        }
                    }
                }
                Op::Same { left, right } => Tree::Same(left.into(), right.into()),
                Op::Within { operand, begin, count } => {
                    Tree::Within(operand.into(), self.ranges(begin, count).to_vec())
                }
            };
            stack.push(Box::new(tree));
        }
        stack.pop().filter(|_| stack.is_empty()).map(|tree| *tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Tree {
        crate::compile_unbound(&crate::parse(text).unwrap()).unwrap().tree().unwrap()
    }

    #[test]
    fn a_tree_has_the_shape_of_its_filter() {
        let Tree::Or(left, right) = tree(r#"!(a & 4) || b == "x*" && c > d"#) else { panic!() };
        let four = Box::new(Tree::Literal(4u64.into()));
        let bits = Tree::Arithmetic(Arithmetic::BitAnd, Box::new(Tree::Operand(0)), four);
        assert_eq!(*left, Tree::Not(Box::new(bits)));
        let Tree::And(text, order) = *right else { panic!() };
        assert_eq!(*text, Tree::Text { operand: 1, literal: b"x".into(), begins: true });
        let operand = |number| Box::new(Tree::Operand(number));
        assert_eq!(*order, Tree::Compare(Comparison::Greater, operand(2), operand(3)));
        assert_eq!(tree(r#"a == "*x""#), Tree::Pattern(0));
        assert_eq!(tree("a == b"), Tree::Same(0, 1));
    }
}
