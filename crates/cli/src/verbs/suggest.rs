//! `punctual suggest`: the contracts that a recorded stream needs, and how it fares under a given one.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use punctual::counted;
use punctual_analysis::suggest::{
    Choice, ContractOutcome, Kind, Packets, Reservation, choices, fare, reservation,
};
use punctual_analysis::{Contract, Nanos, Rate};
use serde::Serialize;

use crate::output::{Outcome, Output, Usage};
use crate::recording::{self, Recording};
use crate::values;

const EXAMPLE: &str = "Examples:
  $ punctual suggest examples/media/bigbuckbunny-720p25.h264 --deadline 80ms
  $ ffprobe -v error -select_streams v:0 -show_entries packet=pts_time,size -of csv film.mp4 > film.csv
  $ punctual suggest film.csv --deadline 80ms
  $ punctual suggest examples/traces/bikes-640x272-h264.csv --deadline 80ms --contract 30KB,25/s,1

RECORDING is a raw H.264 stream (Annex B), the CSV of ffprobe, or a CSV with the header `frame,pts_s,bytes,...` and one line
per frame in the order of sending. The flags of 'punctual send' for a choice are printed below it.";

/// Suggest contracts for a recorded stream: size, rate, burst and deadline that fit it.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Suggest {
    /// The recorded stream: a .h264 or CSV file.
    recording: PathBuf,
    /// Frame rate of a .h264 stream (25/s), if the stream does not state it or states it wrongly.
    #[arg(long, value_parser = values::rate)]
    rate: Option<Rate>,
    /// A frame must have arrived completely within this time after it was sent.
    #[arg(long, value_parser = values::span)]
    deadline: Nanos,
    /// Also show how the stream would do under this contract: size, rate and burst (110KB,25/s,1), with --deadline.
    #[arg(long, value_name = "S,R,B", value_parser = traffic)]
    contract: Option<Traffic>,
    /// Payload of one packet; the size of buffers follows from it.
    #[arg(long, value_parser = values::fragment, default_value = "1400B")]
    fragment: u32,
}

#[derive(Debug, Serialize)]
struct Suggestion {
    frames: usize,
    frame_bytes_max: u32,
    bits_per_second_mean: u64,
    choices: Vec<Ready>,
    given: Option<SuppliedContract>,
}

/// A choice, and the flags that request it.
#[derive(Debug, Serialize)]
struct Ready {
    #[serde(flatten)]
    choice: Choice,
    /// For `punctual send`.
    send_flags: String,
}

#[derive(Debug, Serialize)]
struct SuppliedContract {
    contract: Contract,
    reserves: Reservation,
    fare: ContractOutcome,
}

impl Suggest {
    /// Reads the stream and prints what would carry it.
    ///
    /// # Errors
    /// A trace that cannot be read or makes no sense, a contract out of range.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let name = self.recording.display().to_string();
        let content = std::fs::read(&self.recording).with_context(|| name.clone())?;
        let Recording { trace, is_h264 } = recording::read(&content, self.rate).with_context(|| name)?;
        let packets = Packets { fragment_bytes: self.fragment, ..Packets::default() };
        let given = self.contract.map(|traffic| traffic.within(self.deadline)).transpose()?;
        let given = given.map(|contract| SuppliedContract {
            contract,
            reserves: reservation(&contract, &packets),
            fare: fare(&trace, &contract),
        });
        let choices = choices(&trace, self.deadline, &packets);
        if choices.is_empty() {
            let wrong = format!("no contract carries this within {}", self.deadline);
            return Err(Usage(format!("{wrong}: give a deadline of more than 0 and up to an hour")).into());
        }
        let frame_bytes_max = trace.bytes_max();
        let ready = |choice: Choice| Ready {
            send_flags: send_flags(&choice.contract, frame_bytes_max, is_h264),
            choice,
        };
        let suggestion = Suggestion {
            frames: trace.frames().len(),
            frame_bytes_max,
            bits_per_second_mean: trace.bits_per_second(),
            choices: choices.into_iter().map(ready).collect(),
            given,
        };
        output.print_with_units(&suggestion, describe)?;
        Ok(Outcome::Done)
    }
}

/// S, R and B of a contract; its deadline is given apart.
#[derive(Clone, Copy)]
struct Traffic {
    message_bytes_max: u32,
    rate_max: Rate,
    burst_messages_max: u32,
}

impl Traffic {
    fn within(self, deadline: Nanos) -> Result<Contract, Usage> {
        Contract::new(self.message_bytes_max, self.rate_max, self.burst_messages_max, deadline)
            .map_err(|error| Usage(format!("--contract: {error}")))
    }
}

/// "110KB,25/s,1".
fn traffic(text: &str) -> Result<Traffic, String> {
    let wrong = || format!("\"{text}\": give size, rate and burst as 110KB,25/s,1");
    let [size, rate, burst] = text.split(',').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
    Ok(Traffic {
        message_bytes_max: values::bytes(size)?,
        rate_max: values::rate(rate)?,
        burst_messages_max: burst.trim().parse().map_err(|_| wrong())?,
    })
}

/// The flags that request exactly this contract and split the stream into its messages.
fn send_flags(contract: &Contract, frame_bytes_max: u32, is_h264: bool) -> String {
    let bytes = contract.message_bytes_max;
    let split = match (is_h264, bytes < frame_bytes_max) {
        (true, true) => format!(" --split h264:{bytes}B"),
        (true, false) => " --split h264".into(),
        (false, true) => format!(" --split {bytes}B"),
        (false, false) => String::new(),
    };
    format!(
        "--rate {} --size {bytes}B --burst {} --deadline {}{split}",
        exact_rate(contract.rate_max),
        contract.burst_messages_max,
        exact_span(contract.deadline)
    )
}

/// As `values::rate` reads it, not rounded.
fn exact_rate(rate: Rate) -> String {
    match (1_000_000_000_u64.checked_rem(rate.interval().0), rate.interval()) {
        (Some(0), Nanos(interval)) => format!("{}/s", 1_000_000_000 / interval),
        (_, interval) => exact_span(interval),
    }
}

/// As `values::span` reads it, not rounded.
fn exact_span(Nanos(ns): Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let whole = units.into_iter().find(|(unit, _)| ns % unit == 0);
    whole.map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

fn show_bit_rate(bits_per_second: u64) -> String {
    format!("{:.3} Mbit/s", bits_per_second as f64 / 1e6)
}

fn show_bytes(bytes: u64) -> String {
    format!("{:.1} KB", bytes as f64 / 1e3)
}

fn describe(suggestion: &Suggestion) -> String {
    let mut text = format!(
        "{}, largest {}, mean {}\n",
        counted(suggestion.frames, "frame"),
        show_bytes(suggestion.frame_bytes_max.into()),
        show_bit_rate(suggestion.bits_per_second_mean)
    );
    for Ready { choice: Choice { kind, contract, reserves, fare }, send_flags } in &suggestion.choices {
        let contract = describe_contract(contract, reserves, fare);
        text += &format!("\n{}\n{contract}  send      punctual send NAME@HOST {send_flags}\n", idea(*kind));
    }
    if let Some(SuppliedContract { contract, reserves, fare }) = &suggestion.given {
        text += &format!("\nGiven\n{}", describe_contract(contract, reserves, fare));
    }
    text
}

/// The trade-off of a choice.
fn idea(kind: Kind) -> &'static str {
    match kind {
        Kind::Peak => "peak: each frame a message; waits for nothing, reserves the most",
        Kind::SmoothedHalf => "smoothed-half: frames cut up, waiting up to half of the deadline",
        Kind::SmoothedThreeQuarters => {
            "smoothed-three-quarters: the same with three quarters; cheaper, harder on every stage"
        }
        Kind::Burst => "burst: little more than the mean rate; a large frame waits long beyond the deadline",
    }
}

fn describe_contract(contract: &Contract, reserves: &Reservation, fare: &ContractOutcome) -> String {
    format!(
        "  contract  S {} B, R {:.3}/s, B {}, D {}\n  reserves  {} on each link, {} at the source, {} at the sink\n  \
         fares     {}, {} delayed by policing, longest wait {}, frame complete within {}\n            \
         with policing drop: {} lost, {} of {} damaged\n",
        contract.message_bytes_max,
        contract.rate_max.as_per_second_f64(),
        contract.burst_messages_max,
        contract.deadline,
        show_bit_rate(reserves.bits_per_second),
        show_bytes(reserves.source_buffer_bytes),
        show_bytes(reserves.sink_buffer_bytes),
        counted(fare.messages, "message"),
        fare.messages_delayed,
        fare.wait_max,
        fare.latency_max,
        counted(fare.messages_dropped, "message"),
        fare.frames_damaged,
        counted(fare.frames, "frame"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use punctual_analysis::suggest::Trace;

    use super::*;
    use crate::host::Traffic as Flags;
    use crate::split::Split;

    /// The flags of `send` that have to do with a contract.
    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        traffic: Flags,
        #[arg(long, default_value = "auto")]
        split: Split,
    }

    fn asked(flags: &str) -> Asked {
        Asked::parse_from(["send"].into_iter().chain(flags.split_whitespace()))
    }

    #[test]
    fn the_flags_of_each_choice_ask_for_its_contract() {
        // 29.97 frames a second, whose interval is not a whole number of any unit.
        let sizes = (0..90).map(|frame| if frame % 30 == 0 { 90_000 } else { 3_000 + frame * 7 });
        let trace = Trace::regular(sizes, Nanos(33_366_667)).expect("a trace");
        let choices = choices(&trace, Nanos::from_millis(80), &Packets::default());
        assert!(choices.len() >= 3, "{choices:?}");
        for Choice { kind, contract, .. } in choices {
            let of = |is_h264| asked(&send_flags(&contract, trace.bytes_max(), is_h264));
            assert_eq!(of(true).traffic.contract().expect("in range"), contract, "{kind:?}");
            let size = contract.message_bytes_max as usize;
            let splits = match kind {
                Kind::Peak => (Split::H264, Split::Auto),
                _ => (Split::H264Cut(size), Split::Fixed(size)),
            };
            assert_eq!((of(true).split, of(false).split), splits, "{kind:?}");
        }
    }

    #[test]
    fn quantities_are_written_as_people_would_and_exactly() {
        assert_eq!(exact_rate(Rate::per_second(25).expect("a rate")), "25/s");
        assert_eq!(exact_rate(Rate::every(Nanos(33_366_667)).expect("a rate")), "33366667ns");
        assert_eq!(exact_rate(Rate::every(Nanos::from_secs(10)).expect("a rate")), "10s");
        assert_eq!(exact_span(Nanos::from_millis(80)), "80ms");
        assert_eq!(exact_span(Nanos(1_500)), "1500ns");
    }
}
