//! Whether a link drains what is promised across it. Only a measurement says that; a name plate can only contradict.

use std::collections::BTreeMap;

use punctual::{BitRate, RateStatus};
use punctual_engine::config::LinkDriver;
use punctual_engine::name_plate;
use punctual_link::kernel::Device;
use punctual_proto::node::config::LinkConfig;

use super::Finding;
use crate::link_rate;

const CHECK: &str = "link rate";

/// What a running daemon knows of its links, by name.
pub type KnownRates = BTreeMap<String, RateStatus>;

/// What is wrong with a link's device, and what is known of its rate; `serving`: a daemon runs.
pub fn check(
    link: &LinkConfig,
    driver: &LinkDriver,
    known: Option<&RateStatus>,
    serving: bool,
) -> Vec<Finding> {
    let device = match driver {
        LinkDriver::Memory => return Vec::new(),
        LinkDriver::Udp(udp) if udp.local.is_loopback() => return Vec::new(),
        LinkDriver::Udp(udp) => udp.device.as_deref(),
        LinkDriver::Xdp(xdp) => Some(xdp.classifier.device.as_str()),
    };
    if let Some(device) = device.filter(|device| Device::named(device).is_err()) {
        let fix = format!("ip link shows what there is; correct \"device\" (now \"{device}\")");
        return vec![Finding::problem(CHECK, format!("there is no interface {device}"), fix)];
    }
    let plate = device.and_then(name_plate);
    vec![judge(link, plate, known, serving)]
}

fn judge(link: &LinkConfig, plate: Option<BitRate>, known: Option<&RateStatus>, serving: bool) -> Finding {
    let mbit = |rate: BitRate| format!("{:.1} Mbit/s", rate.0 as f64 / 1e6);
    let name = &link.name;
    let configured = match link.rate_auto {
        true => format!("{name}: finds its rate out by itself"),
        false => format!("{name}: {} configured", mbit(link.rate)),
    };
    if let Some(plate) = plate.filter(|plate| !link.rate_auto && link.rate > *plate) {
        let found = format!("{configured}, more than its device can ever carry ({})", mbit(plate));
        return Finding::problem(CHECK, found, format!("lower rate of link \"{name}\" to what is measured"));
    }
    let status = known.filter(|status| status.auto == link.rate_auto);
    if let Some((status, measured)) = status.and_then(|status| Some((status, status.measured?))) {
        let found = format!("{configured}, {measured} measured");
        let fix = format!("{} in link \"{name}\", then restart punctuald", link_rate::fix(measured));
        return Finding::judge(CHECK, found, !link_rate::is_beyond(status), Finding::problem, &fix);
    }
    let plate = plate.map_or_else(String::new, |plate| {
        format!("; its name plate says {}, which proves nothing", mbit(plate))
    });
    let why = status.and_then(|status| status.refused).map_or_else(String::new, |why| format!(": {why}"));
    let start = if serving { "" } else { "start punctuald on both hosts, then " };
    let fix = format!("{start}punctual profile --link {name} measures it with the neighbour's help");
    Finding::note(CHECK, format!("{configured}, never measured{why}{plate}"), fix)
}

#[cfg(test)]
mod tests {
    use punctual::{Instant, MeasuredRate, Ppm};
    use punctual_proto::ids::NodeId;

    use super::*;
    use crate::doctor::State;

    fn link() -> LinkConfig {
        LinkConfig::new("to-b", NodeId(2), BitRate(95_000_000))
    }

    fn measured(rate: u64, at_least: bool) -> RateStatus {
        let found = MeasuredRate { rate: BitRate(rate), error: Ppm(10_000), at_least, at: Instant(0) };
        let LinkConfig { rate, rate_error: error, .. } = link();
        RateStatus { rate, error, measured: Some(found), ..RateStatus::default() }
    }

    #[test]
    fn only_what_was_measured_is_called_possible() {
        let plate = Some(BitRate(10_000_000_000));
        let never = judge(&link(), plate, None, false);
        assert_eq!(never.state, State::Note);
        assert!(never.found.contains("10000.0 Mbit/s, which proves nothing"), "{never:?}");
        assert!(never.fix.contains("punctual profile --link to-b"), "{never:?}");
        let fine = judge(&link(), plate, Some(&measured(94_000_000, true)), true);
        assert_eq!(fine.state, State::Ok);
        assert!(fine.found.contains("at least 94.0 Mbit/s +-0.9 measured"), "{fine:?}");
    }

    #[test]
    fn more_than_measured_or_than_the_name_plate_is_a_problem_with_its_fix() {
        let slow = judge(&link(), None, Some(&measured(20_300_000, false)), true);
        assert_eq!(slow.state, State::Problem);
        assert!(slow.fix.contains("rate = \"20.0Mbit/s\""), "{slow:?}");
        let plate = judge(&link(), Some(BitRate(10_000_000)), Some(&measured(95_000_000, true)), true);
        assert_eq!(plate.state, State::Problem);
        assert!(plate.found.contains("more than its device can ever carry"), "{plate:?}");
    }

    #[test]
    fn a_link_that_finds_its_rate_out_and_has_not_says_why() {
        let auto = LinkConfig { rate_auto: true, ..link() };
        let refused = Some(punctual::RateRefusal::NoNeighbour);
        let status = RateStatus { auto: true, refused, ..RateStatus::default() };
        let finding = judge(&auto, None, Some(&status), true);
        assert_eq!(finding.state, State::Note);
        assert!(finding.found.contains("the neighbour does not answer"), "{finding:?}");
    }
}
