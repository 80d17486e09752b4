//! Parts of SVG plots: shapes and texts ([`Drawing`]), scales and their ticks, labels of numbers.
//!
//! Plots are drawn by hand, because a plot here is a few hundred lines and does what plotting
//! libraries don't: it follows the reader's light or dark colours, within one file. Each caller
//! composes its own plots and styles their classes.
#![forbid(unsafe_code)]

mod drawing;
mod numbers;
mod scale;

pub use drawing::{Anchor, Drawing, Point, Shape, escaped};
pub use numbers::{duration, plain_number, with_thousands};
pub use scale::{LogScale, linear_ticks, logarithmic_ticks};
