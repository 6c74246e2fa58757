//! Tables of suggestions for streams, verdicts on arrivals, routes and buffers. Other tests check
//! correctness, by theory and by brute force; this one detects every change of a number or text. For an
//! intended change, run with `PUNCTUAL_PIN=1` and review the difference (docs/adr/0049).

#[path = "tables/dice.rs"]
mod dice;
#[path = "tables/table.rs"]
mod table;

use std::fmt::Write;

use dice::Dice;
use punctual_analysis::buffers::{self, PoolPart};
use punctual_analysis::path::{self, PathStage, Prediction};
use punctual_analysis::sharing::{ShareStage, Sharing};
use punctual_analysis::suggest::{Frame, Packets, Trace, choices, fare};
use punctual_analysis::{
    Arrival, ArrivalTerms, ArrivalsWithin, Contract, EffectiveArrivals, Horizon, Instant, LogicalArrivals,
    Nanos, Policing, Ppb, Ppm, Rate,
};
use table::Table;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;

fn contract(bytes: u32, interval: Nanos, burst: u32, deadline: Nanos) -> Contract {
    Contract::new(bytes, Rate::every(interval).expect("a rate"), burst, deadline).expect("valid")
}

#[test]
fn suggestions_for_streams() {
    let mut table = Table::default();
    let mut streams = vec![
        ("two at once, one later", vec![(0, 5_000), (0, 100), (40_000, 900)]),
        ("two in a microsecond", vec![(0, 300), (1, 300)]),
        ("a large one", vec![(0, 90_000), (33_000, 400), (66_000, 400), (100_000, 70_000)]),
        ("small ones", vec![(0, 1), (10_000, 2), (20_000, 0), (20_500, 1)]),
    ];
    let mut dice = Dice(9);
    let mut at = 0;
    streams.push((
        "drawn",
        (0..60)
            .map(|_| {
                at += 1_000 + dice.below(40_000);
                (at, 200 + dice.below(30_000) as u32)
            })
            .collect(),
    ));
    for (what, frames) in streams {
        let frames =
            frames.into_iter().map(|(us, bytes)| Frame { sent: Instant(us * 1_000), bytes }).collect();
        let trace = Trace::new(frames).expect("a stream");
        table.row(what, &(trace.bytes_max(), trace.gap_min(), trace.duration(), trace.bits_per_second()));
        for deadline in [5, 40, 300] {
            for packets in [Packets::default(), Packets { fragment_bytes: 500, overhead_bytes: 66 }] {
                for choice in choices(&trace, MS(deadline), &packets) {
                    table.row("  choice", &choice);
                    for policing in [Policing::Drop, Policing::Demote] {
                        let contract = Contract { policing, burst_messages_max: 1, ..choice.contract };
                        table.row("    with a burst of one", &fare(&trace, &contract));
                    }
                }
            }
        }
    }
    for text in [
        "",
        "a,b\n1,2",
        "pts_s,bytes\n0,1\nx,2",
        "pts_s,bytes\n0,1\n1,-2",
        "pts_s,bytes\n0,1",
        "pts_s,bytes\n1,1\n1,1",
        "bytes,key,pts_s\n10,1,0.5\n\n20,0,0.1\n",
        "pts_s,bytes\n-1,5\n2,7",
        "pts_s,bytes\n0,99999999999\n1,1",
    ] {
        let trace = Trace::parse_csv(text);
        table.row(&format!("{text:?}"), &trace);
        if let Err(error) = trace {
            writeln!(table.0, "  {error}").expect("a text");
        }
    }
    table.is_as_written("suggestions");
}

#[test]
fn verdicts_on_arrivals() {
    let mut table = Table::default();
    for policing in [Policing::Delay, Policing::Drop, Policing::Demote] {
        for (burst, jitter) in [(1, None), (3, None), (2, Some(MS(2)))] {
            let contract = Contract { jitter, ..contract(100, MS(10), burst, MS(30)) };
            let (mut arrivals, mut dice, mut now) = (LogicalArrivals::of(&contract), Dice(burst.into()), 0);
            table.row(&format!("{policing:?} {burst} {jitter:?}"), &arrivals);
            for _ in 0..25 {
                now += dice.below(14_000_000);
                let earliest = Instant(now + dice.below(3_000_000));
                let expected = (arrivals.peek(Instant(now)), arrivals.conforms(Instant(now)));
                let verdict = arrivals.accept_seen(Instant(now), earliest, policing);
                table.row(&format!("  {now}"), &(expected, verdict, arrivals.claimed()));
            }
        }
    }
    let mut within = ArrivalsWithin::new(MS(5), 3);
    let mut dice = Dice(4);
    for (number, message) in [0, 0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 2, 4].into_iter().enumerate() {
        let reached = Instant(number as u64 * 1_700_000 + dice.below(2_000_000));
        table.row(&format!("{message} {}", reached.0), &within.accept(message, reached));
    }
    table.is_as_written("arrivals");
}

#[test]
fn what_receivers_make_of_packets() {
    let mut table = Table::default();
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let contract = contract(2_000, MS(10), 2, MS(30));
        let terms = ArrivalTerms {
            period: contract.policed_interval(),
            packets_max: contract.packets_max(1_400),
            wire_bytes_max: 2_200,
            early_max: contract.deadline + MS(5),
            jitter: US(dice.below(3_000)),
        };
        let (mut arrivals, mut nominal) = (EffectiveArrivals::default(), 50_000_000);
        table.row(&format!("{seed}"), &terms);
        for message in 0..12 {
            nominal += 4_000_000 + dice.below(12_000_000);
            for fragment in 0..1 + dice.below(4) {
                let received = Instant(nominal - 3_000_000 + dice.below(7_000_000));
                let message = if dice.below(7) == 0 { message / 2 } else { message };
                let arrival = Arrival {
                    message,
                    wire_bytes: 400 + dice.below(1_100) as u32,
                    received,
                    nominal: Instant(nominal),
                };
                let verdict = arrivals.accept(&terms, &arrival);
                table.row(&format!("  {message}.{fragment} at {}", received.0), &verdict);
            }
        }
    }
    table.is_as_written("receivers");
}

#[test]
fn ways_shares_and_buffers() {
    let mut table = Table::default();
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(5) as usize;
        let stages: Vec<PathStage> = (0..count)
            .map(|_| PathStage {
                bound: dice.between(1, 9_000_000),
                propagation_max: dice.between(0, 400_000),
            })
            .collect();
        let bounds: Vec<Nanos> = stages.iter().map(|stage| stage.bound).collect();
        let (rho, deadline) = (Ppm(dice.below(400) as u32), dice.between(1_000_000, 60_000_000));
        let left = path::leftover(&stages, rho, deadline);
        table.row(&format!("{seed}"), &(path::end_to_end(&stages, rho), left));
        for mode in [Horizon::Cumulative, Horizon::Regulated] {
            let committed = path::committed_horizon(mode, deadline, bounds[0], stages[0].propagation_max);
            table.row("  horizons", &(path::horizons(mode, &bounds), committed));
        }
        let hop = Prediction {
            error: US(dice.below(900)),
            propagation_min: US(5),
            propagation_max: US(dice.below(300) + 5),
        };
        table.row("  jitter", &path::next_jitter(US(70), &hop, rho, bounds[0]));
        let shares: Vec<ShareStage> = (0..count)
            .map(|_| ShareStage {
                offered: dice.between(0, 5_000_000),
                cost: dice.between(0, 900_000),
                load: Ppm(dice.below(1_000_001) as u32),
            })
            .collect();
        for sharing in Sharing::ALL {
            let spare = left.unwrap_or(MS(3));
            table.row(sharing.name(), &(sharing.shares(spare, &shares), sharing.of_last(spare, &shares)));
        }
        let weights: Vec<u64> = (0..count).map(|_| dice.below(4)).collect();
        table.row("  weighed", &path::leftover_shares(deadline, &weights));
        let (period, jitter) = (dice.between(1_000_000, 20_000_000), dice.between(0, 2_000_000));
        table.row(
            "  buffers",
            &[
                buffers::source(count as u32, bounds[0], period),
                buffers::cumulative(deadline, bounds[0], jitter, period),
                buffers::regulated(bounds[0], jitter, deadline, jitter, period),
                buffers::sink_at_deadline(jitter, deadline, jitter, period),
            ],
        );
        let parts: Vec<PoolPart> = (0..3 + dice.below(60))
            .map(|_| PoolPart {
                most: dice.below(9) as u32,
                period,
                mean_period: period * (1 + dice.below(12)),
            })
            .collect();
        let pools = [10_000, 1_000_000, 100_000_000]
            .map(|ratio| buffers::pooled(&parts, Ppb::new(ratio).expect("a ratio")));
        table.row("  pools", &pools);
    }
    table.is_as_written("ways");
}
