//! Parses the output of `ffprobe -of csv` for a stream's packets or frames.
//!
//! A line is `packet,0.040000,1554`: its section (which `p=0` leaves out), then the requested entries, in
//! ffprobe's own order, with their names (`nk=0`) or without. Without names there are two that a trace needs,
//! time and size (`-show_entries packet=pts_time,size`), or all that a packet has (`-show_packets`).

use alloc::vec::Vec;

/// Command that prints such lines.
pub const COMMAND: &str =
    "ffprobe -v error -select_streams v:0 -show_entries packet=pts_time,size -of csv FILE";

/// Names of an entry with the time of presentation in seconds.
const TIMES: [&str; 3] = ["pts_time", "pkt_pts_time", "best_effort_timestamp_time"];
/// Names of an entry with the size in bytes.
const SIZES: [&str; 2] = ["size", "pkt_size"];
/// Position of the time in the output of `-show_packets`, and distance of the size from the end: behind it
/// are the position and flags.
const TIME_COLUMN: usize = 3;
const SIZE_FROM_END: usize = 3;
/// Entries of a packet, at least: older releases have two more in the middle.
const PACKET_ENTRIES_MIN: usize = 11;

/// Time and size of a packet or a frame of a video, as in the line; `None` if the line has none.
pub fn fields(line: &str) -> Option<(&str, &str)> {
    let mut entries: Vec<&str> = line.trim().trim_end_matches(',').split(',').map(str::trim).collect();
    if matches!(entries.first(), Some(&("packet" | "frame"))) {
        entries.remove(0);
    }
    if entries.iter().any(|entry| entry.contains('=')) {
        return Some((named(&entries, &TIMES)?, named(&entries, &SIZES)?));
    }
    match entries[..] {
        [time, size] => Some((time, size)),
        ["video", ..] if entries.len() >= PACKET_ENTRIES_MIN => {
            Some((entries[TIME_COLUMN], entries[entries.len() - SIZE_FROM_END]))
        }
        _ => None,
    }
}

/// The value of the first of `names` among `name=value`.
fn named<'a>(entries: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let of = |entry: &&'a str| entry.split_once('=').filter(|(name, _)| names.contains(name));
    entries.iter().find_map(of).map(|(_, value)| value)
}

/// Whether a line is about another stream than a video, or about an object that is no packet or frame.
pub fn is_of_something_else(line: &str) -> bool {
    let line = line.trim();
    let other_stream = ["audio,", "subtitle,", "data,", "packet,audio,", "packet,subtitle,", "packet,data,"];
    let other_section = ["format,", "stream,", "side_data", "program,"];
    other_stream.iter().chain(&other_section).any(|start| line.starts_with(start))
        || ["=audio", "=subtitle", "=data"].iter().any(|kind| line.contains(&alloc::format!("type{kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_in_which_ffprobe_prints_packets() {
        let found = Some(("0.040000", "1554"));
        for line in [
            "packet,0.040000,1554",
            "0.040000,1554",
            "frame,0.040000,1554,",
            "packet,pts_time=0.040000,size=1554",
            "frame,pkt_pts_time=0.040000,pkt_size=1554",
            // With names behind the section of another object.
            "packet,pts_time=0.040000,size=1554,side_data",
            // -show_packets of releases 6 and 4.
            "packet,video,0,512,0.040000,512,0.040000,512,0.040000,1554,105306,__",
            "packet,video,0,512,0.040000,512,0.040000,512,0.040000,N/A,N/A,1554,105306,__",
        ] {
            assert_eq!(fields(line), found, "{line}");
        }
        assert_eq!(fields("packet,N/A,1554"), Some(("N/A", "1554")));
        for line in [
            "",
            "packet",
            "video,0,512,0.040000,512,0.040000,512,1554,105306,__",
            "a,b,c",
            "packet,0.04",
            "packet,size=3",
            "pts_time=0.040000,1554",
            "packet,audio,1,0,0,0,0,1,1,9,9,K_",
        ] {
            assert_eq!(fields(line), None, "{line}");
        }
        assert!(is_of_something_else("packet,audio,1,0,0.0,0,0.0,1,1,9,9,K_"));
        assert!(is_of_something_else("packet,codec_type=audio,size=3"));
        assert!(!is_of_something_else("packet,video,0,512,0.04,512,0.04,512,0.04,1554,105306,__"));
    }
}
