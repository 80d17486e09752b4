//! Checks that operators have C's precedence: random expressions of integers are computed by the
//! filter and by the C compiler.
//!
//! C computes with 128 bits, so it agrees wherever values stay within the filter's integer range.
//! Other expressions are skipped; a third computation knows the limits of both languages.

use std::fmt::Write;
use std::process::Command;

use crate::expression::{Binary, Expression, Logic, Node, Unary};
use crate::value::{Arithmetic, Comparison, Value};
use crate::{NoContexts, RecordValues, compile_unbound, parse};

use tompion_testing::{Random, TestDir};

const EXPRESSIONS: usize = 3000;

/// Filter in both languages, token for token.
#[derive(Default)]
struct Text {
    filter: String,
    c: String,
}

impl Text {
    fn add(&mut self, token: &str) {
        write!(self.filter, "{token} ").unwrap();
        write!(self.c, "{token} ").unwrap();
    }

    fn operand(&mut self, random: &mut Random, depth: usize) {
        const SIGNS: [&str; 3] = ["-", "~", "!"];
        const LITERALS: [&str; 16] = [
            "0",
            "1",
            "2",
            "3",
            "5",
            "7",
            "12",
            "63",
            "100",
            "255",
            "0x1f",
            "017",
            "'a'",
            "0b1011",
            "4294967296",
            "9223372036854775808",
        ];
        while random.index(5) == 0 {
            self.add(SIGNS[random.index(3)]);
        }
        if depth > 0 && random.index(4) == 0 {
            self.add("(");
            self.expression(random, depth - 1);
            self.add(")");
            return;
        }
        let literal = LITERALS[random.index(16)];
        write!(self.filter, "{literal} ").unwrap();
        write!(self.c, "(wide){literal}{} ", if literal.starts_with('\'') { "" } else { "ull" }).unwrap();
    }

    fn expression(&mut self, random: &mut Random, depth: usize) {
        const OPERATORS: [&str; 18] = [
            "||", "&&", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=", "<<", ">>", "+", "-", "*", "/", "%",
        ];
        self.operand(random, depth);
        for _ in 0..random.index(5) {
            self.add(OPERATORS[random.index(18)]);
            self.operand(random, depth);
        }
    }
}

/// Number, and whether it has type `int` in C: the type of comparisons.
#[derive(Clone, Copy)]
struct Number {
    value: i128,
    int: bool,
}

/// Returns the expected result of both languages; `None` beyond the limits of one.
fn expected(expression: &Expression) -> Option<i128> {
    let mut stack: Vec<Number> = Vec::new();
    for (node, _) in &expression.nodes {
        let number = match node {
            Node::Number(value) => Number { value: value.as_integer()?, int: false },
            Node::Between(_) => continue,
            Node::Unary(unary) => {
                let Number { value, int } = stack.pop()?;
                match unary {
                    Unary::Not => Number { value: i128::from(value == 0), int: true },
                    Unary::Complement => Number { value: !value, int },
                    Unary::Negate => Number { value: -value, int },
                }
            }
            Node::Binary(binary) => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                apply(*binary, left, right)?
            }
            Node::Text(_) | Node::Name(_) => return None,
        };
        let range = if number.int { -(1 << 31)..1 << 31 } else { -(1 << 63)..1 << 64 };
        stack.push(Some(number).filter(|number| range.contains(&number.value))?);
    }
    stack.pop().map(|number| number.value)
}

fn apply(binary: Binary, left: Number, right: Number) -> Option<Number> {
    let int = left.int && right.int;
    let (a, b) = (left.value, right.value);
    let shift = || u32::try_from(b).ok().filter(|&bits| bits < if left.int { 31 } else { 64 });
    let truth = |holds: bool| Some(Number { value: holds.into(), int: true });
    let value = match binary {
        Binary::Logic(Logic::And) => return truth(a != 0 && b != 0),
        Binary::Logic(Logic::Or) => return truth(a != 0 || b != 0),
        Binary::Comparison(Comparison::Equal) => return truth(a == b),
        Binary::Comparison(Comparison::NotEqual) => return truth(a != b),
        Binary::Comparison(Comparison::Less) => return truth(a < b),
        Binary::Comparison(Comparison::LessEqual) => return truth(a <= b),
        Binary::Comparison(Comparison::Greater) => return truth(a > b),
        Binary::Comparison(Comparison::GreaterEqual) => return truth(a >= b),
        Binary::Arithmetic(Arithmetic::ShiftLeft) => {
            return Some(Number { value: a << shift()?, int: left.int });
        }
        Binary::Arithmetic(Arithmetic::ShiftRight) => {
            return Some(Number { value: a >> shift()?, int: left.int });
        }
        Binary::Arithmetic(Arithmetic::BitOr) => a | b,
        Binary::Arithmetic(Arithmetic::BitXor) => a ^ b,
        Binary::Arithmetic(Arithmetic::BitAnd) => a & b,
        Binary::Arithmetic(Arithmetic::Add) => a + b,
        Binary::Arithmetic(Arithmetic::Subtract) => a - b,
        Binary::Arithmetic(Arithmetic::Multiply) => a.checked_mul(b)?,
        Binary::Arithmetic(Arithmetic::Divide) => a.checked_div(b)?,
        Binary::Arithmetic(Arithmetic::Remainder) => a.checked_rem(b)?,
    };
    Some(Number { value, int })
}

/// Computes expressions with the C compiler.
fn computed_by_c(expressions: &[Text]) -> Vec<i128> {
    let folder = TestDir::new("filter");
    let (source, program) = (folder.join("c.c"), folder.join("c"));
    let mut text =
        String::from("#include <stdio.h>\ntypedef __int128 wide;\nint main(void) {\n\twide value;\n");
    for expression in expressions {
        writeln!(text, "\tvalue = {};", expression.c).unwrap();
        text.push_str("\tprintf(\"%016llx%016llx\\n\", (unsigned long long)(value >> 64), (unsigned long long)value);\n");
    }
    text.push_str("}\n");
    std::fs::write(&source, text).unwrap();
    let built =
        Command::new("cc").args(["-w", "-std=gnu11", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| u128::from_str_radix(line, 16).unwrap() as i128).collect()
}

#[test]
fn operators_bind_as_in_c() {
    let mut random = Random(0x7031_9042);
    let mut expressions = Vec::new();
    while expressions.len() < EXPRESSIONS {
        let mut text = Text::default();
        text.expression(&mut random, 3);
        if text.filter.split(' ').count() > 2 && expected(&parse(&text.filter).unwrap()).is_some() {
            expressions.push(text);
        }
    }
    let results = computed_by_c(&expressions);
    assert_eq!(results.len(), EXPRESSIONS);
    for (text, by_c) in expressions.iter().zip(results) {
        let expression = parse(&text.filter).unwrap();
        let program = compile_unbound(&expression).unwrap();
        let nothing = RecordValues::new(&[], &[][..]).with_contexts(&NoContexts);
        assert_eq!(program.value(&nothing), Value::integer(by_c), "{}\n{}", text.filter, text.c);
        assert_eq!(expected(&expression), Some(by_c), "{}\n{}", text.filter, text.c);
        let again = parse(&expression.to_text()).unwrap();
        assert!(again.is_same_as(&expression), "{}\n{}", text.filter, expression.to_text());
    }
}
