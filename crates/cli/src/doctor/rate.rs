//! Checks whether a link's drain rate is high enough for what is promised across it. Only a measurement can
//! confirm that. A nominal rate can only disprove it.

use punctual::BitRate;
use punctual_host::config::LinkDriver;
use punctual_host::finding::ELSEWHERE;
use punctual_host::nominal_rate;
use punctual_link::kernel::Device;
use punctual_proto::config::LinkConfig;

use super::Finding;
use super::daemon::DaemonLink;
use crate::link_rate;

const CHECK: &str = "link rate";

/// The problems of a link's device and of its rate; `serving`: a daemon runs.
pub fn check(
    link: &LinkConfig,
    driver: &dyn LinkDriver,
    known: Option<&DaemonLink>,
    serving: bool,
) -> Vec<Finding> {
    if !driver.driver().has_wire() || driver.is_loopback() {
        return Vec::new();
    }
    let device = driver.device();
    if let Some(device) = device.filter(|device| Device::named(device).is_err()) {
        return match known {
            Some(_) => vec![elsewhere(&link.name, device), judge(link, None, known, serving)],
            None => vec![missing(device)],
        };
    }
    let nominal = device.and_then(nominal_rate);
    vec![judge(link, nominal, known, serving)]
}

/// The running daemon is in the network namespace of the device.
fn elsewhere(link: &str, device: &str) -> Finding {
    let found = format!(
        "{link}: there is no interface {device} in this network namespace, but the daemon that answers has it"
    );
    Finding::note(CHECK, found, ELSEWHERE)
}

fn missing(device: &str) -> Finding {
    let fix = format!(
        "`ip link` lists the interfaces; correct \"device\" (now \"{device}\"); or where the daemon is to run in another \
         network namespace: ip netns exec NAMESPACE punctual doctor"
    );
    Finding::problem(CHECK, format!("there is no interface {device} in this network namespace"), fix)
}

fn judge(link: &LinkConfig, nominal: Option<BitRate>, known: Option<&DaemonLink>, serving: bool) -> Finding {
    let mbit = |rate: BitRate| format!("{:.1} Mbit/s", rate.0 as f64 / 1e6);
    let name = &link.name;
    let configured = match link.rate_auto {
        true => format!("{name}: measures its rate itself"),
        false => format!("{name}: {} configured", mbit(link.rate)),
    };
    if let Some(nominal) = nominal.filter(|nominal| !link.rate_auto && link.rate > *nominal) {
        let found = format!("{configured}, more than its device can ever carry ({})", mbit(nominal));
        return Finding::problem(CHECK, found, format!("lower rate of link \"{name}\" to the measured rate"));
    }
    let status = known.map(|known| &known.rate).filter(|status| status.auto == link.rate_auto);
    if let Some((status, measured)) = status.and_then(|status| Some((status, status.measured?))) {
        let found = format!("{configured}, {measured} measured");
        let fix = format!("{} in link \"{name}\", then restart punctuald", link_rate::fix(measured));
        return Finding::judge(CHECK, found, !link_rate::is_beyond(status), Finding::problem, &fix);
    }
    let nominal = nominal.map_or_else(String::new, |nominal| {
        format!("; its driver reports {}, which proves nothing", mbit(nominal))
    });
    let why = status.and_then(|status| status.refused).map_or_else(String::new, |why| format!(": {why}"));
    // Only with the neighbour's help.
    if known.is_some_and(|known| !known.alive) {
        let then = match link.rate_auto {
            true => "the daemon then measures the rate".into(),
            false => format!("then measure the rate: punctual profile --link {name}"),
        };
        let fix = format!("start punctuald on the neighbour, which is down; {then}");
        return Finding::note(CHECK, format!("{configured}, never measured{nominal}"), fix);
    }
    let start = if serving { "" } else { "start punctuald on both hosts, then " };
    let fix = format!("{start}punctual profile --link {name} measures it with the neighbour's help");
    Finding::note(CHECK, format!("{configured}, never measured{why}{nominal}"), fix)
}

#[cfg(test)]
mod tests {
    use punctual::{Instant, MeasuredRate, Ppm, RateStatus};
    use punctual_proto::ids::NodeId;

    use super::*;
    use crate::doctor::State;

    fn link() -> LinkConfig {
        LinkConfig::new("to-b", NodeId(2), BitRate(95_000_000))
    }

    fn measured(rate: u64, at_least: bool) -> DaemonLink {
        let found = MeasuredRate { rate: BitRate(rate), error: Ppm(10_000), at_least, at: Instant(0) };
        let LinkConfig { rate, rate_error: error, .. } = link();
        known(RateStatus { rate, error, measured: Some(found), ..RateStatus::default() })
    }

    fn known(rate: RateStatus) -> DaemonLink {
        DaemonLink { rate, alive: true, ..DaemonLink::default() }
    }

    #[test]
    fn only_what_was_measured_is_called_possible() {
        let nominal = Some(BitRate(10_000_000_000));
        let never = judge(&link(), nominal, None, false);
        assert_eq!(never.state, State::Note);
        assert!(never.found.contains("10000.0 Mbit/s, which proves nothing"), "{never:?}");
        assert!(never.fix.contains("punctual profile --link to-b"), "{never:?}");
        let fine = judge(&link(), nominal, Some(&measured(94_000_000, true)), true);
        assert_eq!(fine.state, State::Ok);
        assert!(fine.found.contains("at least 94.0 Mbit/s +-0.9 measured"), "{fine:?}");
    }

    #[test]
    fn more_than_measured_or_than_the_nominal_rate_is_a_problem_with_its_fix() {
        let slow = judge(&link(), None, Some(&measured(20_300_000, false)), true);
        assert_eq!(slow.state, State::Problem);
        assert!(slow.fix.contains("rate = \"20.0Mbit/s\""), "{slow:?}");
        let nominal = judge(&link(), Some(BitRate(10_000_000)), Some(&measured(95_000_000, true)), true);
        assert_eq!(nominal.state, State::Problem);
        assert!(nominal.found.contains("more than its device can ever carry"), "{nominal:?}");
    }

    #[test]
    fn a_link_that_could_not_measure_its_rate_shows_the_reason() {
        let auto = LinkConfig { rate_auto: true, ..link() };
        let refused = Some(punctual::RateRefusal::NoNeighbour);
        let status = RateStatus { auto: true, refused, ..RateStatus::default() };
        let finding = judge(&auto, None, Some(&known(status)), true);
        assert_eq!(finding.state, State::Note);
        assert!(finding.found.contains("the neighbour does not answer"), "{finding:?}");
        // A link whose neighbour is down cannot be measured.
        for link in [auto, link()] {
            let down =
                DaemonLink { rate: RateStatus { auto: link.rate_auto, ..status }, ..DaemonLink::default() };
            let finding = judge(&link, None, Some(&down), true);
            assert!(
                finding.fix.starts_with("start punctuald on the neighbour, which is down"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_device_that_only_the_daemon_has_is_in_another_network_namespace() {
        let driver = |device: &str| {
            let [local, peer] = [1, 2].map(|host| std::net::IpAddr::from([10, 0, 0, host]));
            let mut options = punctual_link::UdpOptions::new(local, peer, 1, 2);
            options.device = Some(device.into());
            options
        };
        let nowhere = driver("no-such-device");
        let [missing] = &check(&link(), &nowhere, None, false)[..] else { panic!("one finding") };
        assert_eq!(missing.state, State::Problem);
        assert!(missing.fix.contains("ip netns exec"), "{missing:?}");
        let known = measured(94_000_000, true);
        let [elsewhere, rate] = &check(&link(), &nowhere, Some(&known), true)[..] else {
            panic!("two findings")
        };
        assert_eq!((elsewhere.state, elsewhere.fix.as_str()), (State::Note, ELSEWHERE));
        assert_eq!(rate.state, State::Ok, "as the daemon knows it: {rate:?}");
    }
}
