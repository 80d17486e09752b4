use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

use tompion_testing::{Random, TestDir};

fn printed(format: &str, arguments: &[Argument<'_>]) -> String {
    let mut message = Vec::new();
    print(format, |number| arguments.get(number as usize - 1).copied(), &mut message);
    String::from_utf8(message).unwrap()
}

fn int(value: i32) -> Argument<'static> {
    Argument::Integer(i64::from(value) as u64, true, 32)
}

#[test]
fn values_are_inserted_at_their_conversions() {
    let rows = [int(17), Argument::Text(b"orders"), Argument::Float(0.25)];
    assert_eq!(printed("rows %5d of %-8s| in %.1f ms (%%)", &rows), "rows    17 of orders  | in 0.2 ms (%)");
    assert_eq!(printed("%3$g %1$05d %2$.3s %1$x", &rows), "0.25 00017 ord 11");
    assert_eq!(
        printed("%*d|%-*.*f|", &[int(-4), int(7), int(6), int(-1), Argument::Float(1.0)]),
        "7   |1.000000|"
    );
    assert_eq!(printed("%c%lc%C", &[int(104), int(0xe9), int(-1)]), "hé\u{fffd}");
    assert_eq!(printed("%b %#B", &[int(5), int(-1)]), format!("101 0B{:b}", u32::MAX));
}

#[test]
fn small_integers_are_promoted_and_large_ones_cut_as_the_format_says() {
    let (minus, byte) = (Argument::Integer(-1i64 as u64, true, 8), Argument::Integer(200, false, 8));
    assert_eq!(printed("%d %u %hhu", &[minus; 3]), "-1 4294967295 255");
    assert_eq!(printed("%d %hhd %u", &[byte; 3]), "200 -56 200");
    let large = Argument::Integer(u64::MAX, false, 64);
    assert_eq!(printed("%llu %ld %hx %w8u", &[large; 4]), "18446744073709551615 -1 ffff 255");
}

#[test]
fn values_of_a_wrong_type_are_shown() {
    let arguments = [Argument::Text(b"text"), Argument::Float(1.5), Argument::Other];
    assert_eq!(printed("%d %6s %s %d %d%n %m%", &arguments), "text    1.5 ? ? ? %m%");
    assert_eq!(printed("%f %s %p", &[int(-3), int(-3), Argument::Text(b"p")]), "-3 -3 p");
}

#[test]
fn hostile_sizes_and_formats_stay_small() {
    assert_eq!(printed("%999999999d", &[int(1)]).len(), MAX_SIZE);
    assert_eq!(printed("%.999999999d", &[int(1)]).len(), MAX_SIZE);
    assert_eq!(printed("%.*f", &[int(i32::MAX), Argument::Float(f64::MAX)]).len(), 309 + 1 + MAX_SIZE);
    assert!(
        printed("%.*a %.*e %.*g", &[int(i32::MAX), Argument::Float(f64::MIN)]).len() <= 3 * MAX_SIZE + 30
    );
    assert_eq!(printed("%*d", &[int(i32::MIN), int(1)]).len(), MAX_SIZE);
    assert!(printed(&"%1$4096d".repeat(10_000), &[int(1)]).len() < MAX_MESSAGE + 2 * MAX_SIZE);
}

/// Generator of random arguments.
struct Arguments(Random);

impl Arguments {
    /// Returns integers of all magnitudes, and extreme values.
    fn integer(&mut self) -> u64 {
        match self.0.number() % 4 {
            0 => self.0.pick(&[0, 1, u64::MAX, 1 << 31, 1 << 63, 0x7fff_ffff, 0xffff_ffff, 9, 10]),
            _ => self.0.number() >> (self.0.number() % 64),
        }
    }

    fn float(&mut self) -> f64 {
        let special = [0.0, 0.5, 2.5, 999_999.5, 9.5, f64::INFINITY, f64::NAN, 5e-324, 1e23, f64::MAX];
        let value = match self.0.number() % 4 {
            0 => self.0.pick(&special),
            1 => f64::from_bits(self.0.number()),
            2 => (self.0.number() % 100_000) as f64 / 64.0,
            _ => (self.0.number() % 1_000_000) as f64 * 10f64.powi((self.0.number() % 20) as i32 - 12),
        };
        if self.0.number() % 2 == 0 { value } else { -value }
    }
}

/// Returns an input line for the C program, and our output.
fn case(random: &mut Arguments) -> (String, String) {
    let kind = random.0.pick(b"iiuulUpdddds");
    let integers: &[&str] = &["d", "i", "u", "x", "X", "o", "hhd", "hd", "hhx", "ho"];
    let conversion = match kind {
        b'i' | b'u' => random.0.pick(integers).to_owned(),
        b'l' | b'U' => format!("ll{}", random.0.pick(&["d", "u", "x", "X", "o"])),
        b'p' => "p".to_owned(),
        b's' => "s".to_owned(),
        _ => random.0.pick(&["e", "E", "f", "F", "g", "G", "a", "A"]).to_owned(),
    };
    // Flags that C leaves undefined for a conversion are excluded. So is `%#g`: glibc 2.36 prints
    // 999999.5 as `1.e+06`.
    let flags: &[&str] = match (kind, conversion.trim_start_matches(['h', 'l'])) {
        (b'p' | b's', _) => &["", "-"],
        (b'd', "g" | "G") => &["", "-", "+", " ", "0", "+0"],
        (b'd', _) => &["", "-", "+", " ", "#", "0", "+0", "-#", "#0+"],
        (_, "d" | "i") => &["", "-", "+", " ", "0", "+0", "- "],
        (_, "u") => &["", "-", "0"],
        _ => &["", "-", "#", "0", "#0", "-#"],
    };
    let (mut sizes, mut arguments, mut columns) = (String::new(), Vec::new(), String::new());
    for point in ["", "."].into_iter().take(if kind == b'p' { 1 } else { 2 }) {
        let number = random.0.number() % 24;
        match random.0.number() % 3 {
            0 => sizes.push_str(&format!("{point}{number}")),
            // A precision alone could not be distinguished from a width on the line.
            1 if point.is_empty() || !arguments.is_empty() => {
                let number = number as i32 - 6;
                sizes.push_str(&format!("{point}*"));
                arguments.push(int(number));
                columns.push_str(&format!("\t{number}"));
            }
            _ => {}
        }
    }
    let format = format!("%{}{sizes}{conversion}", random.0.pick(flags));
    let (shown, float, integer) = (random.0.number(), random.float(), random.integer());
    let (argument, value) = match kind {
        b'i' => (int(integer as i32), (integer as i32).to_string()),
        b'u' => (Argument::Integer(u64::from(integer as u32), false, 32), (integer as u32).to_string()),
        b'l' => (Argument::Integer(integer, true, 64), (integer as i64).to_string()),
        b'U' | b'p' => (Argument::Integer(integer, false, 64), integer.to_string()),
        b's' => match shown % 2 {
            0 => (Argument::Text(b""), String::new()),
            _ => (Argument::Text(b"some text"), "some text".to_owned()),
        },
        _ if float.is_nan() && float.is_sign_negative() => (Argument::Float(float), "-nan".to_owned()),
        _ => (Argument::Float(float), format!("{float:e}")),
    };
    arguments.push(argument);
    (format!("{} {format}\t{value}{columns}", char::from(kind)), printed(&format, &arguments))
}

/// Compiles the C program into a folder; returns `None` without a compiler.
fn compiled(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/message/tests.c");
    let program = folder.join("printf");
    let done = Command::new("cc").args(["-w", "-o"]).arg(&program).arg(source).status();
    done.ok().filter(std::process::ExitStatus::success).map(|_| program)
}

#[test]
fn numbers_are_printed_as_the_c_library_prints_them() {
    let folder = TestDir::new("printf");
    let Some(program) = compiled(&folder) else {
        println!("skipped: there is no C compiler");
        return;
    };
    let mut random = Arguments(Random(0x2545_f491_4f6c_dd1d));
    let cases: Vec<(String, String)> = (0..20_000).map(|_| case(&mut random)).collect();
    let input: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(theirs.lines().count(), cases.len());
    for ((line, ours), theirs) in cases.iter().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "{line:?}");
    }
}
