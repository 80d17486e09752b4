//! Parses tokens to syntax, by recursive descent.

use super::lexer::{Kind, Lexer, Token};
use super::remarks::Remarks;
use super::syntax::{Declarator, Enumerator, Item, Length, TypeExpr, TypeKind, Value};
use super::{Error, Position};

type Result<T> = std::result::Result<T, Error>;

/// Maximum nesting of types.
pub(super) const MAX_DEPTH: usize = 128;

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<(Vec<Item>, Remarks)> {
    let mut lexer = Lexer::new(text);
    let ahead = [lexer.next(), lexer.next(), lexer.next()];
    let mut parser = Parser { lexer, ahead, depth: 0 };
    let mut items = Vec::new();
    while parser.peek() != &Kind::End {
        if !parser.take_symbol(";") {
            items.push(parser.top_item()?);
        }
    }
    Ok((items, parser.lexer.remarks))
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Next tokens.
    ahead: [Token<'a>; 3],
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Kind<'a> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Kind<'a> {
        self.ahead.get(ahead).map_or(&Kind::End, |token| &token.kind)
    }

    fn at(&self) -> Position {
        let [next, ..] = &self.ahead;
        next.at
    }

    fn advance(&mut self) -> Kind<'a> {
        self.ahead.rotate_left(1);
        let [.., last] = &mut self.ahead;
        std::mem::replace(last, self.lexer.next()).kind
    }

    fn expected<T>(&self, expected: &str) -> Result<T> {
        match self.peek() {
            Kind::Wrong(error) => Err((**error).clone()),
            found => Err(Error::Syntax { at: self.at(), expected: expected.into(), found: found.describe() }),
        }
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Kind::Symbol(found) if *found == symbol)
    }

    fn is_symbol_at(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.peek_at(ahead), Kind::Symbol(found) if *found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Word(found) if *found == word)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn symbol(&mut self, symbol: &str) -> Result<()> {
        if self.take_symbol(symbol) { Ok(()) } else { self.expected(&format!("`{symbol}`")) }
    }

    fn word(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Kind::Word(word) => {
                let word = (*word).to_owned();
                self.advance();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    /// Applies a rule one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return self.expected(&format!("types nested at most {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    fn top_item(&mut self) -> Result<Item> {
        let at = self.at();
        let is_block = self.is_symbol_at(1, "{");
        match self.peek() {
            Kind::Word(word) if is_block && is_block_kind(word) => {
                let kind = self.word("a block")?;
                let items = self.body(Self::block_item)?;
                self.symbol(";")?;
                Ok(Item::Block { kind, items, at })
            }
            Kind::Word(_) => self.declaration(),
            _ => self.expected("a block or a declaration"),
        }
    }

    /// Parses `{ item item … }`.
    fn body(&mut self, item: fn(&mut Self) -> Result<Item>) -> Result<Vec<Item>> {
        self.symbol("{")?;
        self.nested(|parser| {
            let mut items = Vec::new();
            while !parser.take_symbol("}") {
                if !parser.take_symbol(";") {
                    items.push(item(parser)?);
                }
            }
            Ok(items)
        })
    }

    /// Parses an item of `trace { … }` and similar blocks.
    fn block_item(&mut self) -> Result<Item> {
        let assigns = ["=", ":=", "."].iter().any(|symbol| self.is_symbol_at(1, symbol));
        if assigns { self.assignment() } else { self.declaration() }
    }

    /// Parses `name = value;` or `name := type;`.
    fn assignment(&mut self) -> Result<Item> {
        let at = self.at();
        let name = self.path()?;
        let item = if self.take_symbol(":=") {
            Item::Bind { name, ty: self.whole_type()? }
        } else {
            self.symbol("=")?;
            Item::Assign { name, value: self.value()?, at }
        };
        self.symbol(";")?;
        Ok(item)
    }

    /// Parses `stream.event.header.id`.
    fn path(&mut self) -> Result<String> {
        let mut path = self.word("a name")?;
        while self.take_symbol(".") || self.take_symbol("->") {
            path.push('.');
            path.push_str(&self.word("a name")?);
        }
        Ok(path)
    }

    fn value(&mut self) -> Result<Value> {
        match self.peek() {
            Kind::Text(_) | Kind::Number(_) | Kind::Symbol("-" | "+") => {}
            Kind::Word(_) => return Ok(Value::Word(self.path()?)),
            _ => return self.expected("a value"),
        }
        match self.peek() {
            Kind::Text(text) => {
                let text = text.clone();
                self.advance();
                Ok(Value::Text(text))
            }
            _ => Ok(Value::Number(self.number()?)),
        }
    }

    fn number(&mut self) -> Result<i128> {
        let negative = self.take_symbol("-");
        if !negative {
            self.take_symbol("+");
        }
        match *self.peek() {
            Kind::Number(number) => {
                self.advance();
                Ok(if negative { -i128::from(number) } else { i128::from(number) })
            }
            _ => self.expected("a number"),
        }
    }

    /// Parses a named type, or a field of a structure.
    fn declaration(&mut self) -> Result<Item> {
        if self.is_word("typealias") {
            self.advance();
            let ty = self.whole_type()?;
            self.symbol(":=")?;
            let at = self.at();
            let name = self.type_words(false)?;
            self.symbol(";")?;
            let declarators = vec![Declarator { name, lengths: Vec::new(), at }];
            return Ok(Item::Aliases { ty, declarators });
        }
        if self.is_word("typedef") {
            self.advance();
            let ty = self.type_before_name()?;
            let declarators = self.declarators()?;
            return Ok(Item::Aliases { ty, declarators });
        }
        let ty = self.type_before_name()?;
        if self.take_symbol(";") {
            return Ok(Item::Declare { ty });
        }
        Ok(Item::Field { ty, declarators: self.declarators()? })
    }

    /// Parses `a, b[3];`.
    fn declarators(&mut self) -> Result<Vec<Declarator>> {
        let mut declarators = vec![self.declarator()?];
        while self.take_symbol(",") {
            declarators.push(self.declarator()?);
        }
        self.symbol(";")?;
        Ok(declarators)
    }

    fn declarator(&mut self) -> Result<Declarator> {
        let at = self.at();
        let name = self.word("a field's name")?;
        let mut lengths = Vec::new();
        while self.take_symbol("[") {
            self.take_symbol("+");
            lengths.push(match self.peek() {
                Kind::Number(number) => {
                    let length = Length::Fixed(*number);
                    self.advance();
                    length
                }
                Kind::Word(_) => Length::Field(self.path()?),
                _ => return self.expected("a length"),
            });
            self.symbol("]")?;
        }
        Ok(Declarator { name, lengths, at })
    }

    /// Parses a type, to which all following words belong.
    fn whole_type(&mut self) -> Result<TypeExpr> {
        self.nested(|parser| parser.type_expression(false))
    }

    /// Parses a type that is followed by the name of a field.
    fn type_before_name(&mut self) -> Result<TypeExpr> {
        self.nested(|parser| parser.type_expression(true))
    }

    fn type_expression(&mut self, name_follows: bool) -> Result<TypeExpr> {
        let at = self.at();
        let with_body = self.is_symbol_at(1, "{");
        let word = match self.peek() {
            Kind::Word(word) => *word,
            _ => return self.expected("a type"),
        };
        let kind = match word {
            "integer" if with_body => TypeKind::Integer(self.attributes()?),
            "floating_point" if with_body => TypeKind::Float(self.attributes()?),
            "string" if with_body => TypeKind::String(self.attributes()?),
            "struct" => self.structure()?,
            "variant" => self.variant()?,
            "enum" => self.enumeration()?,
            _ => TypeKind::Named(self.type_words(name_follows)?),
        };
        Ok(TypeExpr { kind, at })
    }

    /// Parses `unsigned long` or `char *`; the last word is left if it is the name of a field.
    fn type_words(&mut self, name_follows: bool) -> Result<String> {
        let mut words = Vec::new();
        while let Some(word) = word_of_type(self.peek()) {
            if name_follows && !words.is_empty() && word_of_type(self.peek_at(1)).is_none() {
                break;
            }
            words.push(word);
            self.advance();
        }
        if words.is_empty() {
            return self.expected("a type's name");
        }
        Ok(words.join(" "))
    }

    /// Parses `integer { size = 8; … }`, starting at the first word.
    fn attributes(&mut self) -> Result<Vec<Item>> {
        self.advance();
        self.body(Self::assignment)
    }

    fn optional_name(&mut self) -> Option<String> {
        let Kind::Word(word) = *self.peek() else { return None };
        self.advance();
        Some(word.to_owned())
    }

    /// Parses `struct name { … } align(8)`.
    fn structure(&mut self) -> Result<TypeKind> {
        self.advance();
        let name = self.optional_name();
        let body = match self.is_symbol("{") {
            true => Some(self.body(Self::declaration)?),
            false if name.is_none() => return self.expected("a structure's name or `{`"),
            false => None,
        };
        let mut alignment = None;
        if self.is_word("align") && self.is_symbol_at(1, "(") {
            self.advance();
            self.advance();
            alignment = Some(u64::try_from(self.number()?).unwrap_or(0));
            self.symbol(")")?;
        }
        Ok(TypeKind::Struct { name, body, alignment })
    }

    /// Parses `variant name <selector> { … }`.
    fn variant(&mut self) -> Result<TypeKind> {
        self.advance();
        let name = self.optional_name();
        let mut selector = None;
        if self.take_symbol("<") {
            selector = Some(self.path()?);
            self.symbol(">")?;
        }
        let body = match self.is_symbol("{") {
            true => Some(self.body(Self::declaration)?),
            false if name.is_none() => return self.expected("`{`"),
            false => None,
        };
        Ok(TypeKind::Variant { name, selector, body })
    }

    /// Parses `enum name : container { … }`.
    fn enumeration(&mut self) -> Result<TypeKind> {
        self.advance();
        let name = self.optional_name();
        let container = match self.take_symbol(":") {
            true => Some(Box::new(self.whole_type()?)),
            false => None,
        };
        let body = match self.take_symbol("{") {
            true => Some(self.enumerators()?),
            false if name.is_none() => return self.expected("`{`"),
            false => None,
        };
        Ok(TypeKind::Enum { name, container, body })
    }

    /// Parses `a, b = 1, "c" = 2 ... 4 }`.
    fn enumerators(&mut self) -> Result<Vec<Enumerator>> {
        let mut enumerators = Vec::new();
        while !self.take_symbol("}") {
            let label = match self.peek() {
                Kind::Word(label) => (*label).to_owned(),
                Kind::Text(label) => label.clone(),
                _ => return self.expected("a label or `}`"),
            };
            self.advance();
            let mut range = None;
            if self.take_symbol("=") {
                let low = self.number()?;
                let high = if self.take_symbol("...") { self.number()? } else { low };
                range = Some((low, high));
            }
            enumerators.push(Enumerator { label, range });
            if !self.take_symbol(",") && !self.is_symbol("}") {
                return self.expected("`,` or `}`");
            }
        }
        Ok(enumerators)
    }
}

/// Returns a word that can be part of a type's name.
fn word_of_type<'a>(kind: &Kind<'a>) -> Option<&'a str> {
    match kind {
        Kind::Word(word) => Some(word),
        Kind::Symbol(star @ "*") => Some(star),
        _ => None,
    }
}

fn is_block_kind(word: &str) -> bool {
    matches!(word, "trace" | "env" | "clock" | "stream" | "event" | "callsite")
}
