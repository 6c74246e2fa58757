//! A recorded stream: when each frame is sent and how large it is.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use super::ffprobe;
use crate::contract::{MESSAGE_BYTES_MAX, SPAN_MAX};
use crate::units::{Instant, Nanos};

/// A frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time at which it is sent, from the start of the stream.
    pub sent: Instant,
    /// Size of the frame in bytes.
    pub bytes: u32,
}

/// A stream in the order of sending; at least two frames, not all at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    frames: Vec<Frame>,
}

/// Why a trace is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The first line neither names the columns nor is ffprobe's.
    #[error(
        "line 1 neither names the columns `pts_s` and `bytes` nor is one of ffprobe's: print them with '{}'",
        ffprobe::COMMAND
    )]
    Header,
    /// A line does not parse.
    #[error("line {line}: \"{text}\" is no {wanted}")]
    Field {
        /// Number of the line, from 1.
        line: usize,
        /// Text in the field.
        text: String,
        /// Expected content of the field.
        wanted: &'static str,
    },
    /// A frame that is no valid message.
    #[error("frame {frame} has {bytes} B: a message has 1 B to {} B", MESSAGE_BYTES_MAX)]
    Size {
        /// Number of the frame, from 0.
        frame: usize,
        /// Size of the frame in bytes.
        bytes: usize,
    },
    /// Too few frames to derive a rate.
    #[error("at least two frames at different times are needed")]
    TooShort,
}

impl Trace {
    /// Frames at the given times.
    ///
    /// # Errors
    /// If there are fewer than two, or all at one time.
    pub fn new(mut frames: Vec<Frame>) -> Result<Self, TraceError> {
        frames.sort_by_key(|frame| frame.sent);
        let start = frames.first().map_or(Instant::ZERO, |frame| frame.sent);
        frames.iter_mut().for_each(|frame| frame.sent = Instant(frame.sent.since(start).0));
        match frames.last() {
            Some(last) if last.sent > Instant::ZERO => Ok(Self { frames }),
            _ => Err(TraceError::TooShort),
        }
    }

    /// Reads lines of `frame,pts_s,bytes,...` behind a line with these column names, or lines of ffprobe
    /// (`-of csv`), in decoding order, which is the order of sending. Presentation times may be out of order
    /// (B frames); the n-th line is sent at the n-th time. Players leave some times out (`N/A`): each of
    /// those is set to the middle of the widest gap.
    ///
    /// # Errors
    /// A line that does not parse, or too few frames.
    pub fn parse_csv(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
        let &(_, first) = lines.peek().ok_or(TraceError::Header)?;
        let header: Vec<&str> = first.split(',').map(str::trim).collect();
        let column = |name| header.iter().position(|&column| column == name);
        let mut rows = Rows::default();
        if let (Some(time), Some(bytes)) = (column("pts_s"), column("bytes")) {
            for (index, line) in lines.skip(1) {
                let field = |column: usize| line.split(',').nth(column).unwrap_or("").trim();
                rows.add(index + 1, field(time), field(bytes))?;
            }
        } else {
            for (index, line) in lines.filter(|(_, line)| !ffprobe::is_of_something_else(line)) {
                let (time, bytes) = ffprobe::fields(line).ok_or_else(|| no_row(index + 1, line))?;
                rows.add(index + 1, time, bytes)?;
            }
        }
        rows.into_trace()
    }

    /// Frames of these sizes, one after the other `interval` apart.
    ///
    /// # Errors
    /// The errors of [`Trace::new`], and [`TraceError::Size`] for a size that is no valid message.
    pub fn regular(sizes: impl IntoIterator<Item = usize>, interval: Nanos) -> Result<Self, TraceError> {
        let frame = |(index, size): (usize, usize)| {
            let bytes = u32::try_from(size).ok().filter(|bytes| (1..=MESSAGE_BYTES_MAX).contains(bytes));
            let bytes = bytes.ok_or(TraceError::Size { frame: index, bytes: size })?;
            Ok(Frame { sent: Instant(interval.0.saturating_mul(index as u64)), bytes })
        };
        Self::new(sizes.into_iter().enumerate().map(frame).collect::<Result<_, _>>()?)
    }

    /// The frames in the order of sending; the first at 0.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The largest frame.
    pub fn bytes_max(&self) -> u32 {
        self.frames.iter().map(|frame| frame.bytes).max().unwrap_or_default()
    }

    /// The shortest time between frames that are not sent at the same time.
    pub fn gap_min(&self) -> Nanos {
        let gaps = self.frames.windows(2).map(|pair| pair[1].sent.since(pair[0].sent));
        gaps.filter(|&gap| gap > Nanos::ZERO).min().unwrap_or(SPAN_MAX)
    }

    /// Time from the first frame to one mean gap after the last.
    pub fn duration(&self) -> Nanos {
        let last = self.frames.last().map_or(Nanos::ZERO, |frame| frame.sent.since(Instant::ZERO));
        last + last / (self.frames.len() as u64 - 1)
    }

    /// Mean payload rate in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        let bytes: u128 = self.frames.iter().map(|frame| u128::from(frame.bytes)).sum();
        u64::try_from(bytes * 8_000_000_000 / u128::from(self.duration().0)).unwrap_or(u64::MAX)
    }
}

/// The error of a line that is not of ffprobe. The first line shows best what the file is.
fn no_row(line: usize, text: &str) -> TraceError {
    match line {
        1 => TraceError::Header,
        line => {
            TraceError::Field { line, text: text.into(), wanted: "line of ffprobe with a time and a size" }
        }
    }
}

/// The state of parsing.
#[derive(Default)]
struct Rows {
    /// Times of the rows in nanoseconds; a stream may begin before 0.
    times: Vec<i128>,
    sizes: Vec<u32>,
    /// Lines without a time.
    untimed: usize,
}

impl Rows {
    fn add(&mut self, line: usize, time: &str, bytes: &str) -> Result<(), TraceError> {
        let wrong = |text: &str, wanted| TraceError::Field { line, text: text.into(), wanted };
        match time {
            "N/A" => self.untimed += 1,
            known => self.times.push(nanos(known).ok_or_else(|| wrong(known, "time in seconds"))?),
        }
        let size = bytes.parse().ok().filter(|size| (1..=MESSAGE_BYTES_MAX).contains(size));
        self.sizes.push(size.ok_or_else(|| wrong(bytes, "frame size in bytes"))?);
        Ok(())
    }

    fn into_trace(mut self) -> Result<Trace, TraceError> {
        self.times.sort_unstable();
        let start = self.times.first().copied().unwrap_or_default();
        let since = |time: &i128| Instant(u64::try_from(time - start).unwrap_or(u64::MAX));
        let mut times: Vec<Instant> = self.times.iter().map(since).collect();
        (0..self.untimed).for_each(|_| halve_widest_gap(&mut times));
        let frame = |(sent, bytes)| Frame { sent, bytes };
        Trace::new(times.into_iter().zip(self.sizes).map(frame).collect())
    }
}

/// Adds a time in the middle of the widest gap.
fn halve_widest_gap(times: &mut Vec<Instant>) {
    let gap = |later: &usize| times[*later].since(times[*later - 1]);
    if let Some(later) = (1..times.len()).max_by_key(gap) {
        times.insert(later, times[later - 1] + gap(&later) / 2);
    }
}

/// "12.040000" or "-0.080000" seconds as nanoseconds, exactly.
fn nanos(text: &str) -> Option<i128> {
    let (text, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction_ns = match fraction {
        "" => 0,
        some => some.parse::<u64>().ok()? * 10_u64.pow(9 - some.len() as u32),
    };
    let ns = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)?;
    // Long recordings are accepted; a value of a day and more means a wrong column.
    (ns <= SPAN_MAX.0 * 24).then_some(sign * i128::from(ns))
}
