//! The requirements for the flows' rates, and the figures of the report.

use punctual::counted;
use serde_json::json;

use super::phase::{Phase, Rates};
use super::{CAP, Flow, World, promised, wire_share};
use crate::excuse::Excuses;
use crate::experiments::Measured;
use crate::report::{Plot, Series};

/// `rate_error` of the test beds' links is its default, 1 %.
const RATE_LESS_ERROR: f64 = 0.99;

pub(super) fn judge(worlds: &[World; 2], capped: &World, excuses: &Excuses) -> Measured {
    let columns = "part, world, phase, flow, guaranteed_mbyte_s, mbyte_s, mbyte_s_outside_holes, wire_share";
    let mut measured = Measured::new("flows that have joined", columns);
    for (part, world) in [("joining", &worlds[0]), ("joining", &worlds[1]), ("capped", capped)] {
        for (number, phase) in world.phases.iter().enumerate() {
            add(&mut measured, part, world, (number, phase), excuses);
        }
    }
    check(&mut measured, &worlds[0], capped, excuses);
    let last = |world: &World| world.phases.last().map(Phase::whole).unwrap_or_default();
    for (index, paper) in ["what is left", "6.4", "3.2", "1.6"].into_iter().enumerate() {
        let shown =
            |world: &World| format!("{:.2}", last(world).get(index).copied().unwrap_or_default() / 1e6);
        let what = format!("all joined: {}, MB/s", name(&worlds[0].flows[index]));
        measured.compare(what, paper, shown(&worlds[0]), shown(&worlds[1]));
    }
    measured.plot = Some(plot(&worlds[0]));
    measured
}

fn add(
    measured: &mut Measured,
    part: &'static str,
    world: &World,
    (number, phase): (usize, &Phase),
    excuses: &Excuses,
) {
    let link = world.pair.link().rate;
    let (whole, outside) = (phase.whole(), phase.outside_holes(excuses));
    for ((flow, whole), outside) in world.flows.iter().zip(&whole).zip(&outside).take(number + 1) {
        let guaranteed = flow.messages.map(|messages| promised(messages) / 1e6);
        measured.add([json!({
            "part": part, "world": world.name, "phase": number, "flow": name(flow),
            "guaranteed_mbyte_s": guaranteed,
            // Rates over the whole phase, and over the slots that no hole touches.
            "mbyte_s": whole / 1e6, "mbyte_s_outside_holes": outside / 1e6,
            "wire_share": wire_share(*outside, link),
        })]);
    }
    let Some(sent) = phase.wire_rate() else { return };
    let sent = sent * 8.0 / link.0 as f64;
    let delivered: f64 = whole.iter().map(|rate| wire_share(*rate, link)).sum();
    // The uses of our link's rate, as fractions of it.
    measured.points.push(json!({
        "part": "account", "world": world.name, "phase": number,
        // Messages that were delivered, with all their headers.
        "delivered": delivered,
        // Signalling, and messages that were under way at either end of the phase.
        "others": sent - delivered,
        // The error of the rate, which the pace stays below.
        "rate_error": 1.0 - RATE_LESS_ERROR,
        // The part of the pace that was not used: late wake-ups, holes, a cap.
        "unused": RATE_LESS_ERROR - sent,
    }));
    let (slots, excused) = phase.slots_and_excused(excuses);
    measured.samples += slots;
    measured.excused += excused;
}

fn check(measured: &mut Measured, ours: &World, capped: &World, excuses: &Excuses) {
    for (index, flow) in ours.flows.iter().enumerate() {
        let Some(messages) = flow.messages else { continue };
        // Rates in every phase from the flow's own on.
        let rates = ours.phases[index..].iter().map(|phase| phase.whole()[index]);
        let off = rates.map(|rate| (rate / promised(messages) - 1.0).abs());
        let name = format!("{} a period: largest distance from its bandwidth", counted(messages, "message"));
        measured.at_most(name, off.fold(0.0, f64::max), 0.01);
    }
    let outside = |phase: &Phase| phase.outside_holes(excuses);
    let (least, distance) = (least_left(ours, outside), distance_from_cap(capped, outside));
    measured.at_least("best effort, of what guaranteed flows leave, outside holes", least, 0.95);
    let name = format!(
        "best effort at 40 % of what the link certainly has ({RATE_LESS_ERROR} of its rate): distance from the cap, outside holes"
    );
    measured.at_most(name, distance, 0.01);
    measured.notes.push(format!(
        "holes included: best effort {:.1} % of what guaranteed flows leave, {:.2} % from the cap",
        least_left(ours, Phase::whole) * 100.0,
        distance_from_cap(capped, Phase::whole) * 100.0,
    ));
}

/// The smallest part that best effort had of what guaranteed flows left of the link, of all phases.
fn least_left(ours: &World, rates: impl Fn(&Phase) -> Rates) -> f64 {
    let link = ours.pair.link().rate;
    let left = ours.phases.iter().enumerate().map(|(joined, phase)| {
        let rates = rates(phase);
        let guaranteed: f64 = (1..=joined).map(|flow| wire_share(rates[flow], link)).sum();
        wire_share(rates[0], link) / (1.0 - guaranteed)
    });
    left.fold(f64::INFINITY, f64::min)
}

/// Our links have the configured rate less the error of its measurement.
fn distance_from_cap(capped: &World, rates: impl Fn(&Phase) -> Rates) -> f64 {
    let given = wire_share(rates(&capped.phases[0])[0], capped.pair.link().rate) / RATE_LESS_ERROR;
    (given / CAP - 1.0).abs()
}

fn name(flow: &Flow) -> String {
    flow.messages.map_or("best effort".into(), |messages| format!("{messages} x 8 KB every 10 ms"))
}

fn plot(world: &World) -> Plot {
    let series = world.series.iter().enumerate().map(|(colour, points)| {
        let points = points.iter().map(|&(at, rate)| (at, rate / 1e6));
        Series::new(name(&world.flows[colour]), colour, points).dashed(colour == 0).without_dots()
    });
    let title = "RIO figure 11: guaranteed flows join beside best effort";
    Plot::linear(title, "time, s", "delivered, MB/s", series)
}
