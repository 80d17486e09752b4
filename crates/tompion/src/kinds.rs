//! The values of counters, flows and jobs.

use std::{ptr::NonNull, time::Duration};

use crate::field::Field;

/// Value that [`counter!`](crate::counter) takes.
#[diagnostic::on_unimplemented(message = "a counter's value is an integer or a float, not `{Self}`")]
pub trait Quantity {
    /// Type as which the value is recorded.
    type Value: Field;
    /// The value.
    fn quantity(&self) -> Self::Value;
}

/// Value that [`flow!`](crate::flow) takes.
#[diagnostic::on_unimplemented(message = "a flow's id is an integer or an address, not `{Self}`")]
pub trait Identity {
    /// The id.
    fn identity(&self) -> u64;
}

/// Time that [`job!`](crate::job) takes as the deadline.
#[diagnostic::on_unimplemented(
    message = "a deadline is a `Duration` or a number of nanoseconds (`u64`), not `{Self}`"
)]
pub trait Deadline {
    /// The time allowed; 0 is no deadline.
    fn nanoseconds(self) -> u64;
}

macro_rules! quantities {
    ($($type:ty as $value:ty),*) => {$(
        impl Quantity for $type {
            type Value = $value;
            #[inline(always)]
            fn quantity(&self) -> $value {
                *self as $value
            }
        }
    )*};
}
quantities! {
    i8 as i64, i16 as i64, i32 as i64, i64 as i64, isize as i64,
    u8 as u64, u16 as u64, u32 as u64, u64 as u64, usize as u64,
    f32 as f64, f64 as f64
}

impl<T: Quantity + ?Sized> Quantity for &T {
    type Value = T::Value;
    #[inline(always)]
    fn quantity(&self) -> T::Value {
        (**self).quantity()
    }
}

macro_rules! identities {
    ($($type:ty),*) => {$(
        impl Identity for $type {
            #[inline(always)]
            fn identity(&self) -> u64 {
                *self as u64
            }
        }
    )*};
}
identities! { i8, i16, i32, i64, isize, u8, u16, u32, u64, usize }

impl<T> Identity for *const T {
    #[inline(always)]
    fn identity(&self) -> u64 {
        self.addr() as u64
    }
}

impl<T> Identity for *mut T {
    #[inline(always)]
    fn identity(&self) -> u64 {
        self.addr() as u64
    }
}

impl<T> Identity for NonNull<T> {
    #[inline(always)]
    fn identity(&self) -> u64 {
        self.as_ptr().addr() as u64
    }
}

impl<T: Identity + ?Sized> Identity for &T {
    #[inline(always)]
    fn identity(&self) -> u64 {
        (**self).identity()
    }
}

impl Deadline for u64 {
    #[inline(always)]
    fn nanoseconds(self) -> u64 {
        self
    }
}

impl Deadline for Duration {
    /// Returns the duration in nanoseconds, at most 584 years.
    #[inline(always)]
    fn nanoseconds(self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }
}
