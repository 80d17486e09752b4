//! Types that can be fields, and how their values get into a record.
//!
//! ```text
//! fields   &rows, &name, &ms                       Cons<&u64, Cons<&&str, Cons<&f64, Nil>>>
//! image    rows u64 │ length u32 │ ms f64          Packed<u64, Packed<u32, Packed<u64, ()>>>
//! tails    (name's bytes, length)                  Chain<(), Chain<Tail, Chain<(), ()>>>
//! ```
//!
//! The list's type says all about the event's layout while the program is compiled: the
//! description, the image's size, the number of tails. Nothing is measured or allocated when an
//! event is recorded.

use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr, OsString},
    num::NonZero,
    path::{Path, PathBuf},
    ptr::NonNull,
    rc::Rc,
    sync::Arc,
};

use crate::description::{Shape, Shapes, code};

/// Bytes of variable number, or of an array: `struct tompion_tail`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tail {
    /// First byte.
    pub data: *const u8,
    /// Size in bytes.
    pub size: usize,
}

/// Two parts of an image without a gap.
#[derive(Debug)]
#[repr(C, packed)]
pub struct Packed<A, B>(A, B);

/// Two parts of the tails. Each is a number of [`Tail`]s, so that they lie like an array.
#[derive(Debug)]
#[repr(C)]
pub struct Chain<A, B>(A, B);

/// A value that can be a field of an event.
///
/// | type | recorded as |
/// |---|---|
/// | `i8` … `i64`, `u8` … `u64`, `isize`, `usize`, `NonZero` of them | the integer; `isize` and `usize` as 64 bits |
/// | `f32`, `f64`, `bool` | the same |
/// | `str`, `String`, `CStr`, `Path`, `OsStr` and their owned forms, `char` | text, up to a NUL if it has one |
/// | `[u8]`, `Vec<u8>` | bytes |
/// | `[T]`, `Vec<T>` of integers | a sequence |
/// | `[T; N]` of integers | an array |
/// | `*const T`, `*mut T`, `NonNull<T>` | the address, in hexadecimal |
/// | types of [`enumeration!`](crate::enumeration!) | an integer with names for its values |
/// | [`hex`], [`network`], [`text`] of one of these | the same, shown otherwise |
/// | `&T`, `&mut T`, `Box<T>`, `Rc<T>`, `Arc<T>`, `Cow<T>` | what `T` is |
///
/// A structure needs no type of its own: `point = { x = 1, y = 2 }`. An `Option` has no one type of
/// field: say what stands for `None`, `rows = rows.unwrap_or(0)`.
///
/// # Safety
/// `Image` and `Tails` lie in memory as the library expects them of a type of this `SHAPE`; `Tails`
/// is a number of `Tail`s and nothing else. The tails that `capture` returns point to bytes that
/// can be read while neither `self` nor `scratch` is moved or changed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an event",
    label = "no type of field",
    note = "fields are integers up to 64 bits, floats, `bool`, text, and slices and arrays of integers",
    note = "for an enum there is `tompion::enumeration!`; for an `Option`, `unwrap_or` or a field of its own"
)]
pub unsafe trait Field {
    /// Shape of the type in the description.
    #[doc(hidden)]
    const SHAPE: Shape;
    /// The field's place in the fixed part of a record.
    #[doc(hidden)]
    type Image;
    /// Bytes behind the fixed part.
    #[doc(hidden)]
    type Tails;
    /// Storage for bytes that exist for the record only.
    #[doc(hidden)]
    type Scratch: Default;
    /// Takes the value.
    #[doc(hidden)]
    fn capture(&self, scratch: &mut Self::Scratch) -> (Self::Image, Self::Tails);
}

/// An integer, by itself or as an element.
///
/// # Safety
/// The type is an integer that lies in memory as its code says.
pub unsafe trait Element: Copy {
    /// The type's code.
    #[doc(hidden)]
    const CODE: u8;
    /// Field that a slice becomes.
    #[doc(hidden)]
    const SLICE: Shape = Shape::sequence(Self::CODE);
}

/// Integers and what consists of them: what [`hex`], [`network`] and [`text`] take.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no integer, and no array or slice of integers",
    label = "no integers"
)]
pub trait Integers: Field {}

macro_rules! integers {
    ($($type:ty as $image:ty: $code:ident),* $(,)?) => {$(
        // SAFETY: the image is the integer that the code tells.
        unsafe impl Field for $type {
            const SHAPE: Shape = Shape::plain(code::$code);
            type Image = $image;
            type Tails = ();
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> ($image, ()) {
                (*self as $image, ())
            }
        }
        // SAFETY: as above.
        unsafe impl Field for NonZero<$type> {
            const SHAPE: Shape = Shape::plain(code::$code);
            type Image = $image;
            type Tails = ();
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> ($image, ()) {
                (self.get() as $image, ())
            }
        }
        impl Integers for $type {}
        impl Integers for NonZero<$type> {}
    )*};
}
integers! {
    i8 as i8: I8, i16 as i16: I16, i32 as i32: I32, i64 as i64: I64, isize as i64: I64,
    u8 as u8: U8, u16 as u16: U16, u32 as u32: U32, u64 as u64: U64, usize as u64: U64,
}

macro_rules! elements {
    ($($type:ty: $code:ident),* $(,)?) => {$(
        // SAFETY: the type is what the code tells.
        unsafe impl Element for $type {
            const CODE: u8 = code::$code;
        }
    )*};
}
elements! { i8: I8, i16: I16, i32: I32, i64: I64, u16: U16, u32: U32, u64: U64 }

// SAFETY: the type is what the code tells.
unsafe impl Element for u8 {
    const CODE: u8 = code::U8;
    const SLICE: Shape = Shape::plain(code::BYTES);
}

#[cfg(target_pointer_width = "64")]
elements! { isize: I64, usize: U64 }

macro_rules! by_bits {
    ($($type:ty as $image:ty: $code:ident, $value:ident => $bits:expr);* $(;)?) => {$(
        // SAFETY: the image has the size that the code tells.
        unsafe impl Field for $type {
            const SHAPE: Shape = Shape::plain(code::$code);
            type Image = $image;
            type Tails = ();
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> ($image, ()) {
                let $value = *self;
                ($bits, ())
            }
        }
    )*};
}
by_bits! {
    bool as u8: BOOL, value => value as u8;
    f32 as u32: F32, value => value.to_bits();
    f64 as u64: F64, value => value.to_bits();
}

macro_rules! addresses {
    ($($type:ty, $value:ident => $address:expr);* $(;)?) => {$(
        // SAFETY: the image is the integer that the code tells.
        unsafe impl<T: ?Sized> Field for $type {
            const SHAPE: Shape = Shape::plain(code::X64);
            type Image = u64;
            type Tails = ();
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> (u64, ()) {
                let $value = *self;
                ($address.addr() as u64, ())
            }
        }
    )*};
}
addresses! {
    *const T, value => value;
    *mut T, value => value;
    NonNull<T>, value => value.as_ptr();
}

/// The number of elements, and the elements.
#[inline(always)]
fn elements<T>(data: *const T, count: usize) -> (u32, Tail) {
    let most = u32::MAX as usize;
    let count = if count > most { most } else { count };
    (count as u32, Tail { data: data.cast(), size: count * size_of::<T>() })
}

macro_rules! texts {
    ($($type:ty, $value:ident => $bytes:expr);* $(;)?) => {$(
        // SAFETY: the image is the number of bytes; the tail is the value's own memory.
        unsafe impl Field for $type {
            const SHAPE: Shape = Shape::plain(code::STR);
            type Image = u32;
            type Tails = Tail;
            type Scratch = ();
            #[inline(always)]
            fn capture(&self, (): &mut ()) -> (u32, Tail) {
                let $value = self;
                let bytes: &[u8] = $bytes;
                elements(bytes.as_ptr(), bytes.len())
            }
        }
    )*};
}
texts! {
    str, value => value.as_bytes();
    String, value => value.as_bytes();
    CStr, value => value.to_bytes();
    CString, value => value.as_bytes();
    OsStr, value => value.as_encoded_bytes();
    OsString, value => value.as_encoded_bytes();
    Path, value => value.as_os_str().as_encoded_bytes();
    PathBuf, value => value.as_os_str().as_encoded_bytes();
}

// SAFETY: the image is the number of bytes; the tail is in the scratch.
unsafe impl Field for char {
    const SHAPE: Shape = Shape::plain(code::STR);
    type Image = u32;
    type Tails = Tail;
    type Scratch = [u8; 4];
    #[inline(always)]
    fn capture(&self, scratch: &mut [u8; 4]) -> (u32, Tail) {
        let text = self.encode_utf8(scratch);
        elements(text.as_ptr(), text.len())
    }
}

// SAFETY: the image is the number of elements; the tail is the slice's own memory.
unsafe impl<T: Element> Field for [T] {
    const SHAPE: Shape = T::SLICE;
    type Image = u32;
    type Tails = Tail;
    type Scratch = ();
    #[inline(always)]
    fn capture(&self, (): &mut ()) -> (u32, Tail) {
        elements(self.as_ptr(), self.len())
    }
}
impl<T: Element> Integers for [T] {}

// SAFETY: the number of elements is in the description; the tail is the array's own memory.
unsafe impl<T: Element, const N: usize> Field for [T; N] {
    const SHAPE: Shape = Shape::array(T::CODE, N);
    type Image = ();
    type Tails = Tail;
    type Scratch = ();
    #[inline(always)]
    fn capture(&self, (): &mut ()) -> ((), Tail) {
        ((), elements(self.as_ptr(), N).1)
    }
}
impl<T: Element, const N: usize> Integers for [T; N] {}

macro_rules! by_reference {
    ($([$($generics:tt)*] $type:ty, $target:ty);* $(;)?) => {$(
        // SAFETY: all is the target's; what owns it doesn't move it.
        unsafe impl<$($generics)*> Field for $type {
            const SHAPE: Shape = <$target as Field>::SHAPE;
            type Image = <$target as Field>::Image;
            type Tails = <$target as Field>::Tails;
            type Scratch = <$target as Field>::Scratch;
            #[inline(always)]
            fn capture(&self, scratch: &mut Self::Scratch) -> (Self::Image, Self::Tails) {
                <$target as Field>::capture(self, scratch)
            }
        }
    )*};
}
by_reference! {
    [T: Field + ?Sized] &T, T;
    [T: Field + ?Sized] &mut T, T;
    [T: Field + ?Sized] Box<T>, T;
    [T: Field + ?Sized] Rc<T>, T;
    [T: Field + ?Sized] Arc<T>, T;
    [T: Field + ToOwned + ?Sized] Cow<'_, T>, T;
    [T: Element] Vec<T>, [T];
}
impl<T: Integers + ?Sized> Integers for &T {}
impl<T: Integers + ?Sized> Integers for &mut T {}
impl<T: Integers + ?Sized> Integers for Box<T> {}
impl<T: Element> Integers for Vec<T> {}

macro_rules! shown_otherwise {
    ($($wrapper:ident, $change:ident);* $(;)?) => {$(
        // SAFETY: the value's bytes are as before; only how they are shown differs.
        unsafe impl<T: Integers> Field for $wrapper<T> {
            const SHAPE: Shape = T::SHAPE.$change();
            type Image = T::Image;
            type Tails = T::Tails;
            type Scratch = T::Scratch;
            #[inline(always)]
            fn capture(&self, scratch: &mut Self::Scratch) -> (Self::Image, Self::Tails) {
                self.0.capture(scratch)
            }
        }
        impl<T: Integers> Integers for $wrapper<T> {}
    )*};
}
shown_otherwise! { Hex, hexadecimal; Network, network; Text, text }

/// Integers that are shown in hexadecimal; made by [`hex`].
#[derive(Clone, Copy, Debug)]
pub struct Hex<T>(T);

/// Integers with the most significant byte first; made by [`network`].
#[derive(Clone, Copy, Debug)]
pub struct Network<T>(T);

/// Bytes that are text; made by [`text`].
#[derive(Clone, Copy, Debug)]
pub struct Text<T>(T);

/// Integers, arrays or slices of integers that are shown in hexadecimal.
///
/// ```
/// # let (mask, table) = (0xff00_u32, [1u16, 2, 3]);
/// tompion::event!("net", "filter", mask = tompion::hex(mask), table = tompion::hex(&table[..]));
/// ```
#[inline(always)]
pub const fn hex<T: Integers>(value: T) -> Hex<T> {
    Hex(value)
}

/// Integers that lie in memory with the most significant byte first, as in network protocols. They
/// are recorded as they lie there, and shown as what they mean.
///
/// ```
/// # let header = 0x0050_u16.to_be();
/// // `header` was read from a packet: 80 as two bytes, the larger one first.
/// tompion::event!("net", "segment", port = tompion::network(header));
/// ```
#[inline(always)]
pub const fn network<T: Integers>(value: T) -> Network<T> {
    Network(value)
}

/// Arrays and slices of bytes that are text, up to their end or a NUL.
///
/// ```
/// # let comm = *b"server\0\0\0\0\0\0\0\0\0\0";
/// tompion::event!("os", "task", comm = tompion::text(comm));
/// ```
#[inline(always)]
pub const fn text<T: Integers>(bytes: T) -> Text<T> {
    Text(bytes)
}

/// Fields in order.
///
/// # Safety
/// As for [`Field`].
pub unsafe trait Fields {
    /// Their types.
    const SHAPES: Option<&'static Shapes>;
    /// The fixed part of a record, without gaps.
    type Image;
    /// Bytes behind it.
    type Tails;
    /// See [`Field::Scratch`].
    type Scratch: Default;
    /// Takes the values.
    fn capture(&self, scratch: &mut Self::Scratch) -> (Self::Image, Self::Tails);
}

/// No fields.
#[derive(Debug)]
pub struct Nil;

/// A field, and those behind it.
#[derive(Debug)]
pub struct Cons<H, T>(pub H, pub T);

// SAFETY: there is nothing.
unsafe impl Fields for Nil {
    const SHAPES: Option<&'static Shapes> = None;
    type Image = ();
    type Tails = ();
    type Scratch = ();
    #[inline(always)]
    fn capture(&self, (): &mut ()) -> ((), ()) {
        ((), ())
    }
}

// SAFETY: the parts lie one behind the other.
unsafe impl<H: Field, T: Fields> Fields for Cons<H, T> {
    const SHAPES: Option<&'static Shapes> = Some(&Shapes { head: H::SHAPE, next: T::SHAPES });
    type Image = Packed<H::Image, T::Image>;
    type Tails = Chain<H::Tails, T::Tails>;
    type Scratch = (H::Scratch, T::Scratch);
    #[inline(always)]
    fn capture(&self, (head, rest): &mut Self::Scratch) -> (Self::Image, Self::Tails) {
        let (image, tails) = self.0.capture(head);
        let (more, more_tails) = self.1.capture(rest);
        (Packed(image, more), Chain(tails, more_tails))
    }
}

/// Fields that are one field.
#[derive(Debug)]
pub struct Structure<L>(pub L);

// SAFETY: a structure has no bytes of its own.
unsafe impl<L: Fields> Field for Structure<L> {
    const SHAPE: Shape = Shape::structure(L::SHAPES);
    type Image = L::Image;
    type Tails = L::Tails;
    type Scratch = L::Scratch;
    #[inline(always)]
    fn capture(&self, scratch: &mut Self::Scratch) -> (Self::Image, Self::Tails) {
        self.0.capture(scratch)
    }
}
