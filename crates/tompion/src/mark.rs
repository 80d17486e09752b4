//! From Rust's formats to printf's, which descriptions carry, while the program is compiled.
//!
//! ```text
//! "rows {} of {:#06x}, {:.1} %"   →   "rows %u of %#06x, %.1f %%"
//! ```
//!
//! Only what printf can say is taken: no `^`, no fill but a space, no width or precision from an
//! argument, no name within the braces. Everything else stops the compiler.

use crate::description::{Shape, Shapes, code};

/// Longest translated format, in bytes.
const MAX_FORMAT: usize = 2048;

/// A format as printf writes it.
pub struct Printf {
    bytes: [u8; MAX_FORMAT],
    len: usize,
}

impl Printf {
    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The byte at a place.
    pub const fn at(&self, place: usize) -> u8 {
        self.bytes[place]
    }

    const fn push(&mut self, byte: u8) {
        assert!(byte != 0, "tompion: a mark's format contains a NUL");
        assert!(self.len < MAX_FORMAT, "tompion: a mark's format is longer than 2048 bytes");
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    const fn push_if(&mut self, wanted: bool, byte: u8) {
        if wanted {
            self.push(byte);
        }
    }

    const fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(b'0' + (number % 10) as u8);
    }
}

/// Translates a format whose arguments have these types.
pub const fn to_printf(format: &str, arguments: Option<&Shapes>) -> Printf {
    let count = Shapes::count(arguments);
    let mut printf = Printf { bytes: [0; MAX_FORMAT], len: 0 };
    let mut scan = Scan { bytes: format.as_bytes(), at: 0 };
    let (mut next, mut used) = (0, 0u128);
    while let Some(byte) = scan.next() {
        match byte {
            b'%' => {
                printf.push(b'%');
                printf.push(b'%');
            }
            b'{' if scan.take(b'{') => printf.push(b'{'),
            b'{' => {
                let (number, has_number) = match scan.number() {
                    Some(number) => (number, true),
                    None => {
                        next += 1;
                        (next - 1, false)
                    }
                };
                assert!(
                    number < count,
                    "tompion: the format has more conversions than the mark has arguments"
                );
                used |= 1 << number;
                printf.push(b'%');
                if has_number {
                    printf.push_number(number + 1);
                    printf.push(b'$');
                }
                scan.conversion().write(&mut printf, nth(arguments, number).code());
            }
            b'}' => {
                assert!(scan.take(b'}'), "tompion: a mark's format has a closing brace alone; double it");
                printf.push(b'}');
            }
            other => printf.push(other),
        }
    }
    assert!(
        used.count_ones() as usize == count,
        "tompion: the mark has arguments that its format does not use"
    );
    printf
}

const fn nth(mut shapes: Option<&Shapes>, mut number: usize) -> Shape {
    while let Some(shape) = shapes {
        if number == 0 {
            return shape.head;
        }
        number -= 1;
        shapes = shape.next;
    }
    panic!("the number was checked")
}

/// Reads a format.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    const fn peek(&self) -> Option<u8> {
        if self.at < self.bytes.len() { Some(self.bytes[self.at]) } else { None }
    }

    const fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    const fn take(&mut self, byte: u8) -> bool {
        let found = self.at < self.bytes.len() && self.bytes[self.at] == byte;
        self.at += found as usize;
        found
    }

    const fn number(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let before = if let Some(number) = number { number } else { 0 };
            assert!(before < 1000, "tompion: a number in a mark's format is too large");
            number = Some(before * 10 + (digit - b'0') as usize);
            self.at += 1;
        }
        number
    }

    /// Text in braces, behind the argument's number, up to the closing brace.
    const fn conversion(&mut self) -> Conversion {
        let mut found = Conversion::NONE;
        if self.take(b':') {
            self.alignment(&mut found);
            if self.take(b'+') {
                found.plus = true;
            }
            found.alternate = self.take(b'#');
            found.zero = self.take(b'0');
            found.width = self.number();
            if self.take(b'.') {
                found.precision = self.number();
                assert!(found.precision.is_some(), "tompion: a mark's precision is a number");
            }
            if let Some(letter @ (b'?' | b'x' | b'X' | b'o' | b'b' | b'e' | b'E' | b'p')) = self.peek() {
                found.letter = letter;
                self.at += 1;
            }
        }
        assert!(
            self.take(b'}'),
            "tompion: a mark's format has braces with something that printf cannot say, or a name; values stand behind the format"
        );
        found
    }

    const fn alignment(&mut self, found: &mut Conversion) {
        if self.at + 1 < self.bytes.len() && matches!(self.bytes[self.at + 1], b'<' | b'>' | b'^') {
            assert!(self.bytes[self.at] == b' ', "tompion: a mark fills with spaces only");
            self.at += 1;
        }
        found.align = match self.peek() {
            Some(b'<') => Align::Left,
            Some(b'>') => Align::Right,
            _ => return,
        };
        self.at += 1;
    }
}

#[derive(Clone, Copy)]
enum Align {
    /// Numbers to the right, text to the left.
    Usual,
    Left,
    Right,
}

/// A conversion as Rust writes it.
struct Conversion {
    align: Align,
    plus: bool,
    alternate: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
    /// 0 is `{}`.
    letter: u8,
}

impl Conversion {
    const NONE: Self = Self {
        align: Align::Usual,
        plus: false,
        alternate: false,
        zero: false,
        width: None,
        precision: None,
        letter: 0,
    };

    /// Writes it, behind the `%`, for an argument of this type.
    const fn write(self, printf: &mut Printf, ty: u8) {
        let is_text = ty == code::STR;
        let is_float = matches!(ty, code::F32 | code::F64);
        let is_plain = matches!(self.letter, 0 | b'?');
        let is_hexadecimal = ty > code::U64 && ty <= code::X64;
        let left = match self.align {
            Align::Usual => is_text && self.width.is_some(),
            Align::Left => true,
            Align::Right => false,
        };
        printf.push_if(left, b'-');
        printf.push_if(self.plus, b'+');
        printf.push_if(if is_plain { is_hexadecimal } else { self.alternate }, b'#');
        printf.push_if(self.zero, b'0');
        if let Some(width) = self.width {
            printf.push_number(width);
        }
        self.write_precision(printf, ty);
        let is_long = matches!(ty, code::I64 | code::U64 | code::X64) && self.letter != b'p';
        printf.push_if(is_long, b'l');
        printf.push(match (ty, self.letter) {
            (code::STR, 0 | b'?') => b's',
            (code::F32 | code::F64, 0 | b'?') => {
                if self.precision.is_some() {
                    b'f'
                } else {
                    b'g'
                }
            }
            (code::F32 | code::F64, b'e' | b'E') => self.letter,
            (code::I8..=code::I64 | code::BOOL | code::ENUM, 0 | b'?') => b'd',
            (code::U8..=code::U64, 0 | b'?') => b'u',
            (code::U8..=code::X64, 0 | b'?') => b'x',
            (code::I8..=code::X64, b'x' | b'X' | b'o' | b'b') => self.letter,
            (code::X64, b'p') => b'p',
            (code::I8..=code::STR | code::ENUM, _) => {
                panic!("tompion: a conversion that is not for its argument's type")
            }
            _ => panic!("tompion: a mark's arguments are numbers and text"),
        });
        assert!(
            is_text || is_float || self.precision.is_none(),
            "tompion: a precision is for text and floats"
        );
    }

    /// Without a precision, as many digits as a float surely has.
    const fn write_precision(&self, printf: &mut Printf, ty: u8) {
        let usual = match (ty, self.letter) {
            (code::F32, 0 | b'?') => Some(7),
            (code::F64, 0 | b'?') => Some(15),
            _ => None,
        };
        let precision = if self.precision.is_some() { self.precision } else { usual };
        if let Some(precision) = precision {
            printf.push(b'.');
            printf.push_number(precision);
        }
    }
}
