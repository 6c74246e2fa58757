//! Reads the frame rate that an H.264 stream states: the timing in its sequence parameter set (ITU-T H.264
//! 7.3.2.1, E.1.1).

use punctual_analysis::Nanos;

/// `nal_unit_type` of a sequence parameter set.
const SPS: u8 = 7;
/// Profiles whose parameter sets have more fields about colours (7.3.2.1.1).
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];
/// `aspect_ratio_idc` that is followed by the ratio.
const EXTENDED_SAR: u32 = 255;
/// Largest `num_ref_frames_in_pic_order_cnt_cycle`.
const REFERENCES_MAX: u32 = 255;

/// The time between frames; `None` if the stream does not state it.
pub fn frame_interval(stream: &[u8]) -> Option<Nanos> {
    let header = stream.windows(4).position(|at| at[..3] == [0, 0, 1] && at[3] & 0x1f == SPS)? + 4;
    let rest = &stream[header..];
    let end = rest.windows(3).position(|at| at == [0, 0, 1]).unwrap_or(rest.len());
    let bytes = without_emulation_prevention(&rest[..end]);
    let (units, scale) = timing(&mut Bits { bytes: &bytes, at: 0 })?;
    // A tick is a field's time: a frame has two.
    let nanos = 2 * u64::from(units) * 1_000_000_000;
    Some(Nanos(nanos.checked_div(u64::from(scale))?)).filter(|interval| *interval > Nanos::ZERO)
}

/// Replaces 00 00 03 by 00 00.
fn without_emulation_prevention(bytes: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let keep = |byte: &&u8| {
        let is_escape = zeros >= 2 && **byte == 3;
        zeros = if **byte == 0 { zeros + 1 } else { 0 };
        !is_escape
    };
    bytes.iter().filter(keep).copied().collect()
}

/// `num_units_in_tick` and `time_scale`.
fn timing(bits: &mut Bits<'_>) -> Option<(u32, u32)> {
    let profile = bits.u(8)?;
    bits.skip(16)?;
    bits.ue()?;
    if HIGH_PROFILES.contains(&profile) {
        skip_colours(bits)?;
    }
    // log2_max_frame_num_minus4
    bits.ue()?;
    skip_picture_order(bits)?;
    // References, gaps, width, height.
    bits.ue()?;
    bits.skip(1)?;
    bits.ue()?;
    bits.ue()?;
    if !bits.flag()? {
        bits.skip(1)?;
    }
    bits.skip(1)?;
    if bits.flag()? {
        (0..4).try_for_each(|_| bits.ue().map(drop))?;
    }
    if bits.flag()? { vui_timing(bits) } else { None }
}

fn skip_colours(bits: &mut Bits<'_>) -> Option<()> {
    let chroma = bits.ue()?;
    if chroma == 3 {
        bits.skip(1)?;
    }
    bits.ue()?;
    bits.ue()?;
    bits.skip(1)?;
    if bits.flag()? {
        for list in 0..if chroma == 3 { 12 } else { 8 } {
            if bits.flag()? {
                skip_scaling_list(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    Some(())
}

fn skip_scaling_list(bits: &mut Bits<'_>, size: u32) -> Option<()> {
    let (mut last, mut next) = (8_i64, 8_i64);
    for _ in 0..size {
        if next != 0 {
            next = (last + bits.se()?).rem_euclid(256);
        }
        last = if next == 0 { last } else { next };
    }
    Some(())
}

fn skip_picture_order(bits: &mut Bits<'_>) -> Option<()> {
    match bits.ue()? {
        0 => bits.ue().map(drop),
        1 => {
            bits.skip(1)?;
            bits.ue()?;
            bits.ue()?;
            let references = bits.ue().filter(|count| *count <= REFERENCES_MAX)?;
            (0..references).try_for_each(|_| bits.ue().map(drop))
        }
        _ => Some(()),
    }
}

fn vui_timing(bits: &mut Bits<'_>) -> Option<(u32, u32)> {
    if bits.flag()? && bits.u(8)? == EXTENDED_SAR {
        bits.skip(32)?;
    }
    if bits.flag()? {
        bits.skip(1)?;
    }
    if bits.flag()? {
        bits.skip(4)?;
        if bits.flag()? {
            bits.skip(24)?;
        }
    }
    if bits.flag()? {
        bits.ue()?;
        bits.ue()?;
    }
    if bits.flag()? { Some((bits.u(32)?, bits.u(32)?)) } else { None }
}

/// Reads bits, the first of a byte first; `None` at the end.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn u(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0_u32, |value, _| Some((value << 1) | u32::from(self.flag()?)))
    }

    fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    fn skip(&mut self, count: u32) -> Option<()> {
        self.u(count).map(drop)
    }

    /// Exp-Golomb (9.1).
    fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        let rest = if zeros < 32 { self.u(zeros)? } else { return None };
        Some((1_u32 << zeros) - 1 + rest)
    }

    fn se(&mut self) -> Option<i64> {
        let code = i64::from(self.ue()?);
        Some(if code % 2 == 1 { code / 2 + 1 } else { -(code / 2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits as they are in a table of the standard.
    fn packed(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|bit| *bit != b' ').map(|bit| bit - b'0').collect();
        let byte = |bits: &[u8]| (0..8).fold(0, |byte, at| byte << 1 | bits.get(at).copied().unwrap_or(0));
        bits.chunks(8).map(byte).collect()
    }

    #[test]
    fn the_film_declares_25_frames_a_second() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/media/bigbuckbunny-720p25.h264");
        let film = std::fs::read(path).expect(path);
        assert_eq!(frame_interval(&film), Some(Nanos::from_millis(40)));
        // Cut anywhere, it is read as far as it goes.
        for len in 0..40 {
            let cut = frame_interval(&film[..len]);
            assert!(cut.is_none() || cut == Some(Nanos::from_millis(40)), "{len}");
        }
    }

    #[test]
    fn a_high_profile_with_a_matrix_and_cropping_is_read() {
        // Profile 100 with one scaling list of zero deltas; order count of type 1 with two references;
        // interlaced; cropped; an explicit aspect ratio, no overscan, colours, locations; 1001 units at
        // 60000.
        let head = "01100100 00000000 00011110 1 010 1 1 0 1";
        let lists = format!("1 {} 0000000", "1".repeat(16));
        let order = "1 010 0 1 1 011 1 1";
        let size = "1 0 1 1 0 0 1 1 1 1 1 1";
        let vui = "1 1 11111111 00000000000000010000000000000001 0 1 0000 1 000000000000000000000000 1 1 1 1";
        let timing = format!("{:032b} {:032b} 1 1", 1_001, 60_000);
        let bits = packed(&format!("{head} {lists} {order} {size} {vui} {timing}"));
        let escaped = bits.iter().fold(vec![0, 0, 1, 0x67], |mut out, byte| {
            if *byte <= 3 && out.len() > 5 && out.ends_with(&[0, 0]) {
                out.push(3);
            }
            out.push(*byte);
            out
        });
        assert_eq!(frame_interval(&escaped), Some(Nanos(33_366_666)));
    }

    #[test]
    fn a_frame_rate_that_the_stream_lacks_is_not_guessed() {
        assert_eq!(frame_interval(&[]), None);
        assert_eq!(frame_interval(&[0, 0, 1, 0x41, 0x9a]), None);
        assert_eq!(
            frame_interval(&[0, 0, 1, 0x67, 77, 0, 30, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "no end of a number"
        );
        // A scale of zero.
        let bits = "01001101 00000000 00011110 1 1 1 1 1 0 1 1 1 1 0 1 0 0 0 0 1";
        let bytes = packed(&format!("{bits} {:032b} {:032b}", 1, 0));
        assert_eq!(frame_interval(&[&[0, 0, 1, 0x67], bytes.as_slice()].concat()), None);
    }
}
