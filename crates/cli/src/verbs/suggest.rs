//! `punctual suggest`: the contracts that a recorded stream needs, and how it fares under a given one.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use punctual::counted;
use punctual_analysis::suggest::{
    Choice, Fare, Kind, Packets, Reservation, Trace, choices, fare, reservation,
};
use punctual_analysis::{Contract, Nanos, Rate};
use serde::Serialize;

use crate::output::{Outcome, Output, Usage};
use crate::values;

const EXAMPLE: &str = "Example:
  $ punctual suggest examples/traces/bigbuckbunny-720p25-h264.csv --deadline 80ms
  $ punctual suggest examples/traces/bikes-640x272-h264.csv --deadline 80ms --contract 30KB,25/s,1

TRACE has a line `frame,pts_s,bytes,...` and then one line a frame in the order of sending.";

/// Contracts for a recorded stream.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Suggest {
    /// The recorded stream.
    trace: PathBuf,
    /// A frame must be complete so long after it was sent.
    #[arg(long, value_parser = values::span)]
    deadline: Nanos,
    /// Also say how the stream fares under the contract S,R,B (110KB,25/s,1) with this deadline.
    #[arg(long, value_name = "S,R,B", value_parser = traffic)]
    contract: Option<Traffic>,
    /// Payload of a packet.
    #[arg(long, value_parser = values::fragment, default_value = "1400")]
    fragment: u32,
}

#[derive(Debug, Serialize)]
struct Suggestion {
    frames: usize,
    frame_bytes_max: u32,
    bits_per_second_mean: u64,
    choices: Vec<Choice>,
    given: Option<Given>,
}

#[derive(Debug, Serialize)]
struct Given {
    contract: Contract,
    reserves: Reservation,
    fare: Fare,
}

impl Suggest {
    /// Reads the stream and prints what would carry it.
    ///
    /// # Errors
    /// A trace that cannot be read or makes no sense, a contract out of range.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let name = self.trace.display().to_string();
        let text = std::fs::read_to_string(&self.trace).with_context(|| name.clone())?;
        let trace = Trace::parse_csv(&text).with_context(|| name)?;
        let packets = Packets { fragment_bytes: self.fragment, ..Packets::default() };
        let given = self.contract.map(|traffic| traffic.within(self.deadline)).transpose()?;
        let given = given.map(|contract| Given {
            contract,
            reserves: reservation(&contract, &packets),
            fare: fare(&trace, &contract),
        });
        let choices = choices(&trace, self.deadline, &packets);
        if choices.is_empty() {
            let wrong = format!("no contract carries this within {}", self.deadline);
            return Err(Usage(format!("{wrong}: give a deadline of more than 0 and up to an hour")).into());
        }
        let suggestion = Suggestion {
            frames: trace.frames().len(),
            frame_bytes_max: trace.bytes_max(),
            bits_per_second_mean: trace.bits_per_second(),
            choices,
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
    for Choice { kind, contract, reserves, fare } in &suggestion.choices {
        text += &format!("\n{}\n{}", idea(*kind), describe_contract(contract, reserves, fare));
    }
    if let Some(Given { contract, reserves, fare }) = &suggestion.given {
        text += &format!("\nGiven\n{}", describe_contract(contract, reserves, fare));
    }
    text
}

/// What a choice trades.
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

fn describe_contract(contract: &Contract, reserves: &Reservation, fare: &Fare) -> String {
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
