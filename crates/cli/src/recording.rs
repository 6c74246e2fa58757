//! A recorded stream, as it was written: a raw H.264 stream, lines of ffprobe, or a trace with named columns.

use crate::h264::access_units;
use anyhow::Context;
use punctual_analysis::Rate;
use punctual_analysis::suggest::{Trace, ffprobe};

use crate::output::Usage;
use crate::sps::frame_interval;

/// A stream, and whether it is H.264 that `send` can cut into frames.
pub struct Recording {
    /// Frames of the recording.
    pub trace: Trace,
    /// True if the file is the stream itself, not a list of its frames.
    pub is_h264: bool,
}

/// Reads the content of a file. `rate`: frames a second of a raw stream, in place of the rate in the stream.
///
/// # Errors
/// The content has none of these formats or is invalid; or the rate is unknown, or given although the file
/// has times.
pub fn read(content: &[u8], rate: Option<Rate>) -> anyhow::Result<Recording> {
    if content.starts_with(&[0, 0, 1]) || content.starts_with(&[0, 0, 0, 1]) {
        return Ok(Recording { trace: h264(content, rate)?, is_h264: true });
    }
    let text = std::str::from_utf8(content).ok().with_context(|| {
        format!(
            "neither a raw .h264 stream nor CSV: make one with 'ffmpeg -i FILE -c copy -bsf:v h264_mp4toannexb OUT.h264' or \
             '{}'",
            ffprobe::COMMAND
        )
    })?;
    if rate.is_some() {
        return Err(
            Usage("--rate is for a raw .h264 stream, and this file has times: leave it out".into()).into()
        );
    }
    Ok(Recording { trace: Trace::parse_csv(text)?, is_h264: false })
}

fn h264(stream: &[u8], rate: Option<Rate>) -> anyhow::Result<Trace> {
    let interval = rate.map(Rate::interval).or_else(|| frame_interval(stream));
    let missing = || Usage("the stream does not state its frame rate: give --rate, as 25/s".into());
    let interval = interval.ok_or_else(missing)?;
    Ok(Trace::regular(access_units(stream)?.iter().map(|unit| unit.len()), interval)?)
}
