//! Checks the other traffic on the links' devices: whether it is bounded, and whether a device that is
//! configured for Punctual alone has none.

use std::thread::sleep;
use std::time::Duration;

use punctual::rate_text;
use punctual_host::config::{HostConfig, LinkDriver, OtherTraffic};
use punctual_link::kernel::TrafficSample;
use punctual_proto::config::LinkConfig;

use super::Finding;
use super::daemon::DaemonLink;

const CHECK: &str = "kernel traffic";
/// How long a device is listened to.
const LISTEN: Duration = Duration::from_millis(500);
/// More than ARP and the like.
const QUIET_BPS: u64 = 64_000;

/// A finding for each link with a device; `serving`: a daemon runs, and its own traffic cannot be
/// distinguished from others' here. `known`: that daemon's state of a link.
pub fn check<'a>(
    config: &HostConfig,
    serving: bool,
    known: impl Fn(&str) -> Option<&'a DaemonLink>,
) -> Vec<Finding> {
    let drivers = config.drivers.iter().map(|driver| &**driver);
    let links = config.node.links.iter().zip(drivers).zip(&config.other_traffic);
    let finding = |((link, driver), other_traffic): ((&LinkConfig, &dyn LinkDriver), &OtherTraffic)| {
        match other_traffic {
            OtherTraffic::Unknown => {
                Some(unbounded(&link.name, config.kernel_traffic_fix(link, driver.driver())))
            }
            other_traffic => judge(&link.name, driver, *other_traffic, serving, known(&link.name)),
        }
    };
    links.filter_map(finding).collect()
}

fn unbounded(name: &str, fix: String) -> Finding {
    Finding::problem(
        CHECK,
        format!("{name}: nothing limits its kernel traffic: channels across the link are degraded"),
        fix,
    )
}

fn judge(
    name: &str,
    driver: &dyn LinkDriver,
    other_traffic: OtherTraffic,
    serving: bool,
    known: Option<&DaemonLink>,
) -> Option<Finding> {
    let ok = |what: &str| Some(Finding::ok(CHECK, format!("{name}: {what}")));
    // Exceeding the permitted traffic is a finding of its own.
    let is_kept = known.is_none_or(|known| !known.has_foreign_traffic());
    let sent = known.and_then(|known| known.foreign_bps);
    let sent = sent.map(|bps| format!("; other programs send {}", rate_text(bps))).unwrap_or_default();
    match other_traffic {
        OtherTraffic::Nothing | OtherTraffic::Unknown => None,
        OtherTraffic::Behind(rate) => ok(&format!("shaped at {}, behind ours", rate_text(rate.rate_bps))),
        OtherTraffic::Shaped => ok("shaped: kernel_rate, and more while admission allows it"),
        OtherTraffic::Stated | OtherTraffic::Exclusive if !is_kept => None,
        OtherTraffic::Stated => ok(&format!("as interference_burst and interference_share state{sent}")),
        OtherTraffic::Exclusive if known.is_some() => ok(&format!("none, as configured{sent}")),
        OtherTraffic::Exclusive if serving => {
            ok("none, as configured; punctual status shows what other programs send")
        }
        OtherTraffic::Exclusive => Some(alone(name, driver)),
    }
}

/// Checks, while no daemon runs, that no program sends over a device that is configured for Punctual alone.
fn alone(name: &str, driver: &dyn LinkDriver) -> Finding {
    let foreign_rate =
        driver.way_out().and_then(|device| foreign_bps(device.index).map(|bps| (device.name, bps)));
    match foreign_rate {
        Ok((device, Some(bps))) => Finding::judge(
            CHECK,
            format!(
                "{name}: other programs send {} over {device}, which is configured as exclusive",
                rate_text(bps)
            ),
            bps <= QUIET_BPS,
            Finding::problem,
            "keep that traffic off the device, or set kernel_traffic = \"shaped\"",
        ),
        Ok((device, None)) => Finding::note(
            CHECK,
            format!("{name}: {device} was created again during the check"),
            "run doctor again",
        ),
        Err(error) => {
            Finding::problem(CHECK, format!("{name}: {error}"), "correct the link's device or addresses")
        }
    }
}

fn foreign_bps(device: u32) -> Result<Option<u64>, punctual_link::kernel::KernelError> {
    let before = TrafficSample::of(device)?;
    sleep(LISTEN);
    Ok(TrafficSample::of(device)?.foreign_bps(&before, 0))
}

#[cfg(test)]
mod tests {
    use punctual_host::config::drivers::MemorySettings;

    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_link_with_unbounded_kernel_traffic_is_a_problem_with_its_fix() {
        let finding = unbounded("l", "kernel_rate = \"10%\"".into());
        assert_eq!((finding.state, finding.fix.as_str()), (State::Problem, "kernel_rate = \"10%\""));
        assert!(judge("l", &MemorySettings, OtherTraffic::Nothing, false, None).is_none());
        let state =
            |other_traffic| judge("l", &MemorySettings, other_traffic, true, None).expect("a finding").state;
        assert_eq!(
            [OtherTraffic::Stated, OtherTraffic::Shaped, OtherTraffic::Exclusive].map(state),
            [State::Ok; 3]
        );
    }

    #[test]
    fn a_device_that_others_use_is_not_called_alone() {
        let known = |foreign_bps, trouble: Option<&str>| DaemonLink {
            foreign_bps: Some(foreign_bps),
            trouble: trouble.map(str::to_owned),
            ..DaemonLink::default()
        };
        let foreign = known(
            93_000_000,
            Some("foreign traffic of about 93 Mbit/s on v, which is Punctual's alone: keep it off"),
        );
        let quiet = known(12_000, None);
        for other_traffic in [OtherTraffic::Exclusive, OtherTraffic::Stated] {
            assert_eq!(
                judge("l", &MemorySettings, other_traffic, true, Some(&foreign)),
                None,
                "{other_traffic:?}"
            );
            let finding = judge("l", &MemorySettings, other_traffic, true, Some(&quiet)).expect("a finding");
            assert!(
                finding.state == State::Ok && finding.found.contains("other programs send"),
                "{finding:?}"
            );
        }
    }
}
