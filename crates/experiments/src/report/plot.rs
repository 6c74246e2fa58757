//! Line plots as SVG: two axes, named series, vertical marks.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::bars::{self, Bars};
use super::drawing::{FONT, GRID, INK, PALETTE, Scale, drawing, short};

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Label of the axis, with the unit.
    pub label: String,
    /// Division of the axis.
    pub scale: Scale,
}

impl Axis {
    /// An even axis from zero.
    pub fn linear(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }
    /// An axis by powers of ten.
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Logarithmic }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Which colour; series that belong together share it.
    pub colour: usize,
    /// Dashed: the baseline, or the expected values.
    pub dashed: bool,
    /// Dots at the points: measurements that were made one by one.
    pub dots: bool,
    /// Points in the order of x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line with dots at its points, in order of x.
    pub fn new(name: impl Into<String>, colour: usize, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().collect();
        Self { name: name.into(), colour, dashed: false, dots: true, points }
    }
    /// This series, dashed if `dashed`.
    pub fn dashed(self, dashed: bool) -> Self {
        Self { dashed, ..self }
    }
    /// This series without dots, for curves that were not measured point by point.
    pub fn without_dots(self) -> Self {
        Self { dots: false, ..self }
    }
}

/// A vertical line with a word: a bound.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Place on the axis.
    pub x: f64,
    /// The word.
    pub label: String,
    /// Colour of the series that it belongs to.
    pub colour: usize,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title above the plot.
    pub title: String,
    /// The x axis.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
    /// Bounds.
    pub marks: Vec<Mark>,
    /// The corner in which the curves leave room for the legend.
    pub legend: Legend,
}

impl Plot {
    /// Lines without marks, with the legend above them.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: impl IntoIterator<Item = Series>) -> Self {
        let series = series.into_iter().collect();
        Self { title: title.into(), x, y, series, marks: Vec::new(), legend: Legend::Top }
    }
    /// Both axes even.
    pub fn linear(title: &str, x: &str, y: &str, series: impl IntoIterator<Item = Series>) -> Self {
        Self::new(title, Axis::linear(x), Axis::linear(y), series)
    }
    /// The x axis by powers of ten.
    pub fn log_x(title: &str, x: &str, y: &str, series: impl IntoIterator<Item = Series>) -> Self {
        Self::new(title, Axis::logarithmic(x), Axis::linear(y), series)
    }
    /// Both axes by powers of ten.
    pub fn log_log(title: &str, x: &str, y: &str, series: impl IntoIterator<Item = Series>) -> Self {
        Self::new(title, Axis::logarithmic(x), Axis::logarithmic(y), series)
    }
    /// A plot of curves that fall to the right: the share of samples above each value.
    pub fn tails(title: &str, x: &str, y: &str, series: impl IntoIterator<Item = Series>) -> Self {
        Self::log_log(title, x, y, series.into_iter().map(Series::without_dots))
            .with_legend(Legend::LowerLeft)
    }
    /// This plot with these bounds.
    pub fn with_marks(self, marks: Vec<Mark>) -> Self {
        Self { marks, ..self }
    }
    /// This plot with its legend at another place.
    pub fn with_legend(self, legend: Legend) -> Self {
        Self { legend, ..self }
    }
}

/// A row below a plot, as wide and as high as it.
#[derive(Clone, Debug)]
pub enum Row {
    /// Panels side by side.
    Bars(Vec<Bars>),
    /// Another plot.
    Plot(Plot),
}

/// A corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legend {
    /// For curves that fall to the right.
    LowerLeft,
    /// Above the curves: the axis gets more room there.
    Top,
}

/// Smallest and largest shown.
#[derive(Clone, Copy, Debug)]
struct Extent {
    low: f64,
    high: f64,
}

impl Extent {
    fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let shown = values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let (low, high) = shown.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        match scale {
            _ if low > high => Self { low: 0.1, high: 1.0 },
            Scale::Linear => Self { low: low.min(0.0), high: if high > 0.0 { high * 1.08 } else { 1.0 } },
            Scale::Logarithmic => Self { low: low / 1.3, high: (high * 1.3).max(low * 10.0) },
        }
    }
}

impl Plot {
    /// The SVG document, `size` in pixels.
    ///
    /// # Errors
    /// If the plot cannot be drawn: never for finite values.
    pub fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        self.svg_above(&[], size)
    }

    /// The same, and rows below it, each of them `size`.
    ///
    /// # Errors
    /// As [`Plot::svg`].
    pub fn svg_above(&self, rows: &[Row], size: (u32, u32)) -> anyhow::Result<String> {
        let mut document = String::new();
        {
            let parts = 1 + rows.len();
            let whole = (size.0, size.1 * u32::try_from(parts)?);
            let root = SVGBackend::with_string(&mut document, whole).into_drawing_area();
            root.fill(&WHITE).map_err(drawing)?;
            let areas = root.split_evenly((parts, 1));
            self.draw(&areas[0])?;
            for (row, area) in rows.iter().zip(&areas[1..]) {
                match row {
                    Row::Bars(panels) => bars::draw(panels, area)?,
                    Row::Plot(plot) => plot.draw(area)?,
                }
            }
            root.present().map_err(drawing)?;
        }
        Ok(document)
    }

    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
        let marks = self.marks.iter().map(|mark| mark.x);
        let x = Extent::of(self.points().map(|point| point.0).chain(marks), self.x.scale);
        let mut y = Extent::of(self.points().map(|point| point.1), self.y.scale);
        if self.legend == Legend::Top {
            let room = 0.08 * self.series.len() as f64;
            y.high *= match self.y.scale {
                Scale::Linear => 1.0 + room,
                Scale::Logarithmic => (y.high / y.low).powf(room),
            };
        }
        let (xs, ys) = (x.low..x.high, y.low..y.high);
        match (self.x.scale, self.y.scale) {
            (Scale::Linear, Scale::Linear) => self.chart(root, xs, ys, y),
            (Scale::Linear, Scale::Logarithmic) => self.chart(root, xs, ys.log_scale(), y),
            (Scale::Logarithmic, Scale::Linear) => self.chart(root, xs.log_scale(), ys, y),
            (Scale::Logarithmic, Scale::Logarithmic) => self.chart(root, xs.log_scale(), ys.log_scale(), y),
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.series.iter().flat_map(|series| self.shown(series))
    }

    /// The points that a logarithmic axis can show.
    fn shown<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = (f64, f64)> + 'a {
        let fits = |value: f64, scale| value.is_finite() && (scale == Scale::Linear || value > 0.0);
        series.points.iter().copied().filter(move |&(x, y)| fits(x, self.x.scale) && fits(y, self.y.scale))
    }

    fn chart<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        xs: impl AsRangedCoord<CoordDescType = X, Value = f64>,
        ys: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
        y: Extent,
    ) -> anyhow::Result<()>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, (FONT, 17).into_font().color(&INK))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .build_cartesian_2d(xs, ys)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style((FONT, 12).into_font().color(&INK))
            .axis_desc_style((FONT, 13).into_font().color(&INK))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(9)
            .y_labels(7)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()
            .map_err(drawing)?;
        for mark in &self.marks {
            let colour = PALETTE[mark.colour % PALETTE.len()];
            let line = [(mark.x, y.low), (mark.x, y.high)];
            let dashes = DashedLineSeries::new(line, 7, 4, colour.stroke_width(2));
            chart.draw_series(dashes).map_err(drawing)?;
            let left_of_it = Pos::new(HPos::Right, VPos::Top);
            let style = (FONT, 12).into_font().color(&colour).pos(left_of_it);
            let word = Text::new(format!("{} ", mark.label), (mark.x, y.high), style);
            chart.draw_series(std::iter::once(word)).map_err(drawing)?;
        }
        for series in &self.series {
            self.line(&mut chart, series)?;
        }
        chart
            .configure_series_labels()
            .position(match self.legend {
                Legend::LowerLeft => SeriesLabelPosition::LowerLeft,
                Legend::Top => SeriesLabelPosition::UpperRight,
            })
            .background_style(WHITE.mix(0.85))
            .border_style(GRID)
            .label_font((FONT, 12).into_font().color(&INK))
            .draw()
            .map_err(drawing)
    }

    fn line<X, Y>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
        series: &Series,
    ) -> anyhow::Result<()>
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        let colour = PALETTE[series.colour % PALETTE.len()];
        let points = self.shown(series);
        let drawn = if series.dashed {
            let points: Vec<_> = points.collect();
            chart.draw_series(DashedLineSeries::new(points, 4, 3, colour.stroke_width(2)))
        } else {
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))
        };
        let dashed = series.dashed;
        drawn.map_err(drawing)?.label(&series.name).legend(move |(x, y)| {
            let end = if dashed { x + 8 } else { x + 18 };
            PathElement::new(vec![(x, y), (end, y)], colour.stroke_width(2))
        });
        if series.dots {
            let dots = self.shown(series).map(|point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(dots).map_err(drawing)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale, points: Vec<(f64, f64)>) -> Plot {
        let axis = |label: &str| Axis { label: label.into(), scale };
        Plot {
            title: "Latency <&> bound".into(),
            x: axis("ms"),
            y: axis("share"),
            series: vec![Series { name: "a".into(), colour: 0, dashed: true, dots: true, points }],
            marks: vec![Mark { x: 10.0, label: "bound".into(), colour: 0 }],
            legend: if scale == Scale::Linear { Legend::Top } else { Legend::LowerLeft },
        }
    }

    /// Elements are opened and closed in order, attributes are quoted, text is escaped.
    fn well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains('>'), "a stray > in text: {}", &rest[..start]);
            let end = rest.find('>').expect("an element that ends");
            let element = &rest[start + 1..end];
            assert_eq!(element.matches('"').count() % 2, 0, "quotes in <{element}>");
            if let Some(name) = element.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.to_owned()), "</{name}> closes something else");
            } else if !element.ends_with('/') && !element.starts_with(['?', '!']) {
                open.push(element.split_whitespace().next().expect("a name").to_owned());
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty(), "left open: {open:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a number that is none");
    }

    #[test]
    fn plots_are_well_formed() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for points in
                [vec![], vec![(0.0, 0.0)], vec![(1.0, 1.0), (2.0, 0.5), (300.0, 0.0)], vec![(f64::NAN, 1.0)]]
            {
                let svg = plot(scale, points).svg((640, 360)).expect("a plot");
                well_formed(&svg);
                assert!(svg.starts_with("<svg") && svg.contains("&lt;&amp;&gt;"), "the title is escaped");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.00002, 0.25, 1.0, 2.5, 40.0, 475.3].map(short);
        assert_eq!(shown, ["0", "2e-5", "0.25", "1", "2.5", "40", "475"]);
    }
}
