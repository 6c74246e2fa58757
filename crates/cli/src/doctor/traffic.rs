//! What goes out by the links' devices beside Punctual: whether somebody bounds it, and whether a device that is said to be
//! Punctual's alone is that.

use std::thread::sleep;
use std::time::Duration;

use punctual_engine::config::{Beside, HostConfig, LinkDriver};
use punctual_engine::rate_text;
use punctual_link::kernel::{Device, TrafficSample, route_to};

use super::Finding;

const CHECK: &str = "kernel traffic";
/// How long a device is listened to.
const LISTEN: Duration = Duration::from_millis(500);
/// More than ARP and the like.
const QUIET_BPS: u64 = 64_000;

/// A finding for each link with a device; `serving`: a daemon runs, and its own traffic cannot be told from others' here.
pub fn check(config: &HostConfig, serving: bool) -> Vec<Finding> {
    let links = config.node.links.iter().zip(&config.drivers).zip(&config.beside);
    links.filter_map(|((link, driver), beside)| judge(&link.name, driver, *beside, serving)).collect()
}

fn judge(name: &str, driver: &LinkDriver, beside: Beside, serving: bool) -> Option<Finding> {
    let ok = |what: &str| Some(Finding::ok(CHECK, format!("{name}: {what}")));
    match beside {
        Beside::Nothing => None,
        Beside::Unknown => Some(Finding::problem(
            CHECK,
            format!("{name}: nobody bounds it: channels across the link are degraded"),
            "kernel_traffic = \"shaped\" lets the daemon order and bound it, \"exclusive\" says that there is none; or state it \
             in interference_burst and interference_share",
        )),
        Beside::Behind(rate) => ok(&format!("shaped at {}, behind ours", rate_text(rate.rate_bps))),
        Beside::Shaped => ok("shaped: kernel_rate, and more while admission allows it"),
        Beside::Stated => ok("as interference_burst and interference_share say"),
        Beside::Exclusive if serving => ok("none, as configured; punctual status shows what others send"),
        Beside::Exclusive => Some(alone(name, driver)),
    }
}

/// Whether nobody sends by a device that is to be Punctual's alone, while no daemon runs.
fn alone(name: &str, driver: &LinkDriver) -> Finding {
    let device = match driver {
        LinkDriver::Xdp(xdp) => Device::named(&xdp.classifier.device),
        LinkDriver::Udp(udp) => match &udp.device {
            Some(device) => Device::named(device),
            None => route_to(udp.peer).and_then(|route| Device::numbered(route.device)),
        },
        LinkDriver::Memory => Device::named("lo"),
    };
    let heard = device.and_then(|device| foreign_bps(device.index).map(|bps| (device.name, bps)));
    match heard {
        Ok((device, Some(bps))) => Finding::judge(
            CHECK,
            format!("{name}: others send {} by {device}, which is to be Punctual's alone", rate_text(bps)),
            bps <= QUIET_BPS,
            Finding::problem,
            "keep that traffic off the device, or set kernel_traffic = \"shaped\"",
        ),
        Ok((device, None)) => {
            Finding::note(CHECK, format!("{name}: {device} was made anew meanwhile"), "ask again")
        }
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
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_link_that_nobody_bounds_is_a_problem_with_its_fix() {
        let finding = judge("l", &LinkDriver::Memory, Beside::Unknown, false).expect("a finding");
        assert_eq!(finding.state, State::Problem);
        assert!(finding.fix.contains("kernel_traffic"), "{finding:?}");
        assert!(judge("l", &LinkDriver::Memory, Beside::Nothing, false).is_none());
        let state = |beside| judge("l", &LinkDriver::Memory, beside, true).expect("a finding").state;
        assert_eq!([Beside::Stated, Beside::Shaped, Beside::Exclusive].map(state), [State::Ok; 3]);
    }
}
