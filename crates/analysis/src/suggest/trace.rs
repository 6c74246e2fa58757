//! A recorded stream: when each frame is sent and how large it is.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::contract::{MESSAGE_BYTES_MAX, SPAN_MAX};
use crate::units::{Instant, Nanos};

/// A frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it is sent, from the start of the stream.
    pub sent: Instant,
    /// Its size.
    pub bytes: u32,
}

/// A stream in the order of sending; at least two frames, not all at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    frames: Vec<Frame>,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The first line does not name the columns.
    #[error("line 1 must name the columns `pts_s` and `bytes`")]
    Header,
    /// A line does not parse.
    #[error("line {line}: \"{text}\" is no {wanted}")]
    Field {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What should.
        wanted: &'static str,
    },
    /// Too little to derive a rate from.
    #[error("at least two frames at different times are needed")]
    TooShort,
}

impl Trace {
    /// Frames at the given times.
    ///
    /// # Errors
    /// Where there are fewer than two, or all at one time.
    pub fn new(mut frames: Vec<Frame>) -> Result<Self, TraceError> {
        frames.sort_by_key(|frame| frame.sent);
        let start = frames.first().map_or(Instant::ZERO, |frame| frame.sent);
        frames.iter_mut().for_each(|frame| frame.sent = Instant(frame.sent.since(start).0));
        match frames.last() {
            Some(last) if last.sent > Instant::ZERO => Ok(Self { frames }),
            _ => Err(TraceError::TooShort),
        }
    }

    /// Reads lines of `frame,pts_s,bytes,...` in decoding order, which is the order of sending. Presentation
    /// times may be out of order (B frames); the n-th line is sent at the n-th time. Players leave some times out
    /// (`N/A`): each of those lies in the middle of the widest gap.
    ///
    /// # Errors
    /// A line that does not parse, or too few frames.
    pub fn parse_csv(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate();
        let header: Vec<&str> = lines.next().map_or("", |(_, line)| line).split(',').map(str::trim).collect();
        let column = |name| header.iter().position(|&column| column == name).ok_or(TraceError::Header);
        let (time_column, bytes_column) = (column("pts_s")?, column("bytes")?);
        let (mut times, mut sizes, mut missing) = (Vec::new(), Vec::new(), 0);
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let field = |column: usize| line.split(',').nth(column).unwrap_or("").trim();
            let wrong = |text: &str, wanted| TraceError::Field { line: index + 1, text: text.into(), wanted };
            let (time, bytes) = (field(time_column), field(bytes_column));
            match time {
                "N/A" => missing += 1,
                known => times.push(nanos(known).ok_or_else(|| wrong(known, "time in seconds"))?),
            }
            let size = bytes.parse().ok().filter(|size| (1..=MESSAGE_BYTES_MAX).contains(size));
            sizes.push(size.ok_or_else(|| wrong(bytes, "frame size in bytes"))?);
        }
        times.sort_unstable();
        (0..missing).for_each(|_| halve_widest_gap(&mut times));
        let frame = |(sent, bytes)| Frame { sent, bytes };
        Self::new(times.into_iter().zip(sizes).map(frame).collect())
    }

    /// The frames in the order of sending; the first at 0.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The largest frame.
    pub fn bytes_max(&self) -> u32 {
        self.frames.iter().map(|frame| frame.bytes).max().unwrap_or(1)
    }

    /// The shortest time between frames that are not sent at once.
    pub fn gap_min(&self) -> Nanos {
        let gaps = self.frames.windows(2).map(|pair| pair[1].sent.since(pair[0].sent));
        gaps.filter(|&gap| gap > Nanos::ZERO).min().unwrap_or(SPAN_MAX)
    }

    /// From the first frame to one mean gap after the last.
    pub fn duration(&self) -> Nanos {
        let last = self.frames.last().map_or(Nanos::ZERO, |frame| frame.sent.since(Instant::ZERO));
        last + last / (self.frames.len() as u64 - 1).max(1)
    }

    /// Mean payload rate in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        let bytes: u128 = self.frames.iter().map(|frame| u128::from(frame.bytes)).sum();
        u64::try_from(bytes * 8_000_000_000 / u128::from(self.duration().0.max(1))).unwrap_or(u64::MAX)
    }
}

/// Adds a time in the middle of the widest gap.
fn halve_widest_gap(times: &mut Vec<Instant>) {
    let gap = |later: &usize| times[*later].since(times[*later - 1]);
    if let Some(later) = (1..times.len()).max_by_key(gap) {
        times.insert(later, times[later - 1] + gap(&later) / 2);
    }
}

/// "12.040000" seconds as nanoseconds, exactly.
fn nanos(text: &str) -> Option<Instant> {
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
    // Long recordings are fine; a day and more is a mistake in the column.
    (ns <= SPAN_MAX.0 * 24).then_some(Instant(ns))
}
