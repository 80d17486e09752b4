//! Enumerations: integers with names for their values.

use crate::description::Label;

/// A label of an integer type that holds every value of `low` and `high`.
#[doc(hidden)]
pub const fn label(name: &'static str, low: i128, high: i128, bits: u32) -> Label {
    assert!(low <= high, "tompion: a label's range ends before it begins");
    // Labels of 64-bit integers are their 64 bits, signed or not.
    let fits = low >= -(1 << (bits - 1)) && high < 1 << bits;
    assert!(fits, "tompion: a label's value does not fit the enumeration's integer");
    Label { low: low as i64, high: high as i64, name }
}

/// Defines a type of field whose values have names.
///
/// Either names for an integer's values, single ones and ranges; the type that it defines is made
/// of the integer where the event stands:
///
/// ```
/// tompion::enumeration! {
///     /// What a machine does.
///     pub enum MachineState: i32 {
///         idle = 0,
///         running = 1,
///         failed = -9..=-1,
///     }
/// }
///
/// # let code = 1;
/// tompion::event!("plant", "machine", state = MachineState(code));
/// ```
///
/// or, for an enum of Rust without data, the integer that is recorded and all its variants:
///
/// ```
/// #[derive(Clone, Copy)]
/// enum Outcome {
///     Done,
///     Refused = 7,
/// }
/// tompion::enumeration!(for Outcome: u8 { Done, Refused });
///
/// tompion::event!("db", "query_done", outcome = Outcome::Done);
/// ```
///
/// A label is a word. Values are literals or, in parentheses, constant expressions: `(LOW)`,
/// `(LOW)..=(HIGH)`. A value that no label covers is shown as a number. The integer is one of `i8`
/// to `i64` and `u8` to `u64`.
#[macro_export]
macro_rules! enumeration {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident: $integer:ident { $($labels:tt)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility struct $name(pub $integer);

        $crate::__enumeration!(
            @field $name, $integer, value => value.0, $crate::__labels!($integer [] $($labels)*)
        );
    };
    (for $name:ident: $integer:ident { $($variant:ident),+ $(,)? }) => {
        $crate::__enumeration!(
            @field $name, $integer,
            value => match *value { $($name::$variant => $name::$variant as $integer,)+ },
            &[$($crate::private::label(
                stringify!($variant),
                $name::$variant as $integer as i128,
                $name::$variant as $integer as i128,
                $integer::BITS,
            )),+]
        );
    };
}

/// Makes a type a field.
#[doc(hidden)]
#[macro_export]
macro_rules! __enumeration {
    (@field $name:ident, $integer:ident, $value:ident => $number:expr, $labels:expr) => {
        // SAFETY: the image is the integer, as the shape says.
        unsafe impl $crate::Field for $name {
            const SHAPE: $crate::private::Shape = $crate::private::Shape::enumeration(
                <$integer as $crate::private::Element>::CODE,
                &$crate::private::Enumeration { name: stringify!($name), labels: $labels },
            );
            type Image = $integer;
            type Tails = ();
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> ($integer, ()) {
                let $value = self;
                ($number, ())
            }
        }
    };
}

/// The labels of an enumeration, collected in the brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! __labels {
    ($integer:ident [$($done:tt)*]) => { &[$($done)*] };
    ($integer:ident [$($done:tt)*] $label:ident = ($low:expr)..=($high:expr) $(, $($rest:tt)*)?) => {
        $crate::__labels!($integer [$($done)* $crate::__labels!(@label $integer, $label, $low, $high),]
            $($($rest)*)?)
    };
    ($integer:ident [$($done:tt)*] $label:ident = ($value:expr) $(, $($rest:tt)*)?) => {
        $crate::__labels!($integer [$($done)* $crate::__labels!(@label $integer, $label, $value, $value),]
            $($($rest)*)?)
    };
    ($integer:ident [$($done:tt)*] $label:ident = $low:literal..=$high:literal $(, $($rest:tt)*)?) => {
        $crate::__labels!($integer [$($done)* $crate::__labels!(@label $integer, $label, $low, $high),]
            $($($rest)*)?)
    };
    ($integer:ident [$($done:tt)*] $label:ident = $value:literal $(, $($rest:tt)*)?) => {
        $crate::__labels!($integer [$($done)* $crate::__labels!(@label $integer, $label, $value, $value),]
            $($($rest)*)?)
    };
    (@label $integer:ident, $label:ident, $low:expr, $high:expr) => {
        $crate::private::label(
            stringify!($label),
            ($low as $integer) as i128,
            ($high as $integer) as i128,
            $integer::BITS,
        )
    };
}
