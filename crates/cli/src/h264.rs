//! Splits an H.264 Annex B elementary stream into access units, one a frame (ITU-T H.264 7.4.1.2.3, B.1).
//!
//! A frame consists of all that a decoder needs to make one picture: its slices and the parameter sets,
//! delimiters and SEI before them. The concatenation of all units is the stream, byte for byte.

use thiserror::Error;

/// Why a file is no stream that can be split.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// No start code at the beginning.
    #[error(
        "no H.264 Annex B stream: it does not begin with a start code (00 00 01); extract one with `ffmpeg -i FILE -c copy -bsf:v h264_mp4toannexb OUT.h264`"
    )]
    NoStartCode,
    /// The stream contains no picture.
    #[error("no coded picture in the stream")]
    NoPicture,
}

/// A unit of the network abstraction layer: its offset, including the start code, and its type.
struct Nal {
    start: usize,
    kind: u8,
    /// Only slices: whether `first_mb_in_slice` is zero, that is, whether the slice begins a picture.
    begins_picture: bool,
}

/// The access units of a stream, in decoding order.
///
/// # Errors
/// If the bytes are no Annex B stream or hold no picture.
pub fn access_units(stream: &[u8]) -> Result<Vec<&[u8]>, StreamError> {
    let nals = nals(stream);
    if nals.first().is_none_or(|nal| nal.start != 0) {
        return Err(StreamError::NoStartCode);
    }
    let mut starts = Vec::new();
    let mut picture_open = true;
    for nal in &nals {
        let slice = matches!(nal.kind, 1 | 2 | 5);
        let first_of_unit = if slice { nal.begins_picture } else { may_begin_unit(nal.kind) };
        if starts.is_empty() || (picture_open && first_of_unit) {
            starts.push(nal.start);
            picture_open = false;
        }
        picture_open |= slice;
    }
    if !picture_open {
        starts.pop();
    }
    if starts.is_empty() || !nals.iter().any(|nal| matches!(nal.kind, 1 | 2 | 5)) {
        return Err(StreamError::NoPicture);
    }
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    Ok(starts.iter().zip(ends).map(|(&start, end)| &stream[start..end]).collect())
}

/// Delimiter, SPS, PPS, SEI and the reserved 14 to 18 begin a new unit once a picture was seen.
const fn may_begin_unit(kind: u8) -> bool {
    matches!(kind, 6..=9 | 14..=18)
}

fn nals(stream: &[u8]) -> Vec<Nal> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(code) = find_start_code(stream, at) {
        let header = code + 3;
        // The zero byte before a start code belongs to the unit that the code begins.
        let start = if code > 0 && stream[code - 1] == 0 { code - 1 } else { code };
        if let Some(&first) = stream.get(header) {
            // ue(v) of zero is the single bit 1.
            let begins_picture = stream.get(header + 1).is_some_and(|byte| byte & 0x80 != 0);
            found.push(Nal { start, kind: first & 0x1f, begins_picture });
        }
        at = header;
    }
    found
}

fn find_start_code(stream: &[u8], from: usize) -> Option<usize> {
    let rest = stream.get(from..)?;
    rest.windows(3).position(|window| window == [0, 0, 1]).map(|offset| from + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/media/bigbuckbunny-720p25.h264");
    const TRACE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/traces/bigbuckbunny-720p25-h264.csv");

    #[test]
    fn the_film_has_the_frames_of_its_trace() {
        let stream = std::fs::read(MEDIA).expect(MEDIA);
        let units = access_units(&stream).expect("a stream");
        assert_eq!(units.len(), 132);
        let trace = std::fs::read_to_string(TRACE).expect(TRACE);
        let sizes: Vec<usize> =
            trace.lines().skip(1).map(|row| row.split(',').nth(2).unwrap().parse().unwrap()).collect();
        assert_eq!(units.iter().map(|unit| unit.len()).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn the_units_are_the_stream() {
        let stream = std::fs::read(MEDIA).expect(MEDIA);
        let joined: Vec<u8> = access_units(&stream).expect("a stream").concat();
        assert!(joined == stream, "bytes were lost or moved");
    }

    #[test]
    fn several_slices_are_one_picture() {
        // SPS, slice with first_mb 0, slice with first_mb > 0, then the next picture.
        let stream = [0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x65, 0x88, 0, 0, 1, 0x65, 0x40, 0, 0, 0, 1, 0x41, 0x9a];
        let units = access_units(&stream).expect("a stream");
        assert_eq!(units.iter().map(|unit| unit.len()).collect::<Vec<_>>(), [16, 6]);
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        assert_eq!(access_units(b"RIFF...."), Err(StreamError::NoStartCode));
        assert_eq!(access_units(&[]), Err(StreamError::NoStartCode));
        assert_eq!(access_units(&[0, 0, 1]), Err(StreamError::NoStartCode));
        assert_eq!(access_units(&[0, 0, 1, 0x67, 1]), Err(StreamError::NoPicture));
    }
}
