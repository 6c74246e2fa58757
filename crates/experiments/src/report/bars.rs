//! Histograms and bar charts: panels of one row, one for each thing that is compared.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::drawing::{FONT, GRID, INK, PALETTE, Scale, drawing, short};

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Begin and end of the bar.
    pub span: (f64, f64),
    /// How high it is.
    pub height: f64,
    /// A word above it.
    pub name: Option<String>,
    /// Which colour.
    pub colour: usize,
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Title above the panel.
    pub title: String,
    /// Label of the x axis, with the unit; empty if the bars have names.
    pub x: String,
    /// Upwards.
    pub y: String,
    /// Division of the y axis. On a logarithmic axis the bars begin at [`FLOOR`].
    pub scale: Scale,
    /// Bars from left to right.
    pub bars: Vec<Bar>,
}

/// A value below a count of one.
const FLOOR: f64 = 0.5;

impl Bars {
    /// How many of `values` are in each span of `width`; values beyond `most` are in a last one.
    pub fn histogram(
        title: &str,
        x: &str,
        values: impl Iterator<Item = f64>,
        (width, most, colour): (f64, f64, usize),
    ) -> Self {
        let mut counts = std::collections::BTreeMap::new();
        for value in values.filter(|value| value.is_finite()) {
            *counts.entry((value.min(most) / width) as u64).or_insert(0u64) += 1;
        }
        let bar = |(slot, count): (u64, u64)| Bar {
            span: (slot as f64 * width, (slot + 1) as f64 * width),
            height: count as f64,
            name: None,
            colour,
        };
        let y = format!("samples in {} each", short(width));
        let bars = counts.into_iter().map(bar).collect();
        Self { title: title.into(), x: x.into(), y, scale: Scale::Logarithmic, bars }
    }

    /// A bar for each name.
    pub fn named(title: &str, y: &str, values: impl IntoIterator<Item = (String, f64, usize)>) -> Self {
        let bar = |(place, (name, height, colour)): (usize, (String, f64, usize))| Bar {
            span: (place as f64 + 0.15, place as f64 + 0.85),
            height,
            name: Some(name),
            colour,
        };
        let bars = values.into_iter().enumerate().map(bar).collect();
        Self { title: title.into(), x: String::new(), y: y.into(), scale: Scale::Linear, bars }
    }

    fn left(&self) -> f64 {
        if self.x.is_empty() { 0.0 } else { self.bars.iter().map(|bar| bar.span.0).fold(f64::MAX, f64::min) }
    }

    fn right(&self) -> f64 {
        let last = self.bars.iter().map(|bar| bar.span.1).fold(f64::MIN, f64::max);
        if self.x.is_empty() { last.ceil() } else { last }
    }
}

/// Draws panels side by side; on one x axis if `alike`, so that they can be compared directly.
///
/// # Errors
/// If they cannot be drawn: never for finite values.
pub(super) fn draw(panels: &[Bars], root: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
    let areas = root.split_evenly((1, panels.len().max(1)));
    for (panel, area) in panels.iter().zip(&areas) {
        // Histograms of one unit share their axes.
        let alike = || panels.iter().filter(|other| other.x == panel.x && other.y == panel.y);
        let some = alike().any(|other| !other.bars.is_empty());
        let (left, right) = match some {
            false => (0.0, 1.0),
            true => (
                alike().filter(|one| !one.bars.is_empty()).map(Bars::left).fold(f64::MAX, f64::min),
                alike().filter(|one| !one.bars.is_empty()).map(Bars::right).fold(f64::MIN, f64::max),
            ),
        };
        let heights = alike().flat_map(|one| &one.bars).map(|bar| bar.height);
        let high = heights.filter(|height| height.is_finite()).fold(1.0, f64::max);
        match panel.scale {
            Scale::Linear => chart(panel, area, left..right, 0.0..high * 1.15, 0.0)?,
            Scale::Logarithmic => chart(panel, area, left..right, (FLOOR..high * 2.0).log_scale(), FLOOR)?,
        }
    }
    Ok(())
}

fn chart<Y: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    panel: &Bars,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    xs: std::ops::Range<f64>,
    ys: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    floor: f64,
) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 14).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(xs, ys)
        .map_err(drawing)?;
    let named = panel.x.is_empty();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style((FONT, 11).into_font().color(&INK))
        .axis_desc_style((FONT, 12).into_font().color(&INK))
        .x_desc(&panel.x)
        .y_desc(&panel.y)
        .x_labels(if named { 0 } else { 5 })
        .y_labels(5)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()
        .map_err(drawing)?;
    let shown = || panel.bars.iter().filter(|bar| bar.height.is_finite() && bar.height > 0.0);
    let bars = shown().map(|bar| {
        let colour = PALETTE[bar.colour % PALETTE.len()];
        Rectangle::new([(bar.span.0, floor), (bar.span.1, bar.height)], colour.filled())
    });
    chart.draw_series(bars).map_err(drawing)?;
    let style = (FONT, 11).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
    let names = shown().filter_map(|bar| {
        let middle = (bar.span.0 + bar.span.1) / 2.0;
        Some(Text::new(bar.name.clone()?, (middle, bar.height), style.clone()))
    });
    chart.draw_series(names).map_err(drawing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Plot, Row};

    #[test]
    fn samples_are_counted_by_span_and_the_tail_in_one_bar() {
        let values = [1.0, 4.9, 5.0, 12.0, 99.0, f64::NAN];
        let drawn = Bars::histogram("a", "us", values.into_iter(), (5.0, 20.0, 3));
        let described: Vec<_> = drawn.bars.iter().map(|bar| (bar.span.0, bar.height, bar.colour)).collect();
        assert_eq!(described, [(0.0, 2.0, 3), (5.0, 1.0, 3), (10.0, 1.0, 3), (20.0, 1.0, 3)]);
    }

    #[test]
    fn panels_have_a_bar_for_each_value() {
        let one = Bars::histogram("a", "us", [1.0, 7.0].into_iter(), (5.0, 20.0, 0));
        let named = Bars::named("b", "Mbit/s", [("x".to_owned(), 3.0, 1), ("y".to_owned(), 0.0, 2)]);
        let empty = Bars::histogram("c", "ms", std::iter::empty(), (5.0, 20.0, 0));
        let plot = Plot::new(String::new(), Axis::linear("x"), Axis::linear("y"), Vec::new());
        let rows = [Row::Bars(vec![one, empty]), Row::Bars(vec![named])];
        let document = plot.svg_above(&rows, (800, 300)).expect("a drawing");
        let bars = |colour: &str| document.matches(&format!("fill=\"{colour}\"")).count();
        assert_eq!((bars("#0072B2"), bars("#D55E00")), (2, 1), "{document}");
        assert!(document.contains("height=\"900\"") && !document.contains("NaN"), "{document}");
        let word = |text: &str| document.lines().any(|line| line.trim() == text);
        assert!(word("x") && word("a") && word("b"), "{document}");
    }
}
