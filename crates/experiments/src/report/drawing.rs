//! What plots and bars have in common: colours, axes, numbers.

use anyhow::anyhow;
use plotters::prelude::*;

/// The colours of series, which most colour-blind people can distinguish (Okabe and Ito).
pub(super) const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];
pub(super) const INK: RGBColor = RGBColor(40, 44, 52);
pub(super) const GRID: RGBColor = RGBColor(226, 229, 234);
pub(super) const FONT: &str = "sans-serif";

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, beginning at zero.
    Linear,
    /// Powers of ten; values at or below zero are left out.
    Logarithmic,
}

/// Four significant digits, no trailing zeros.
pub(super) fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 {
        return format!("{value:.0e}");
    }
    let text = match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

pub(super) fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}
