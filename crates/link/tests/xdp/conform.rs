//! The suite of all drivers.

use punctual_link::conformance::{Properties, Settings, check_driver};
use punctual_link::xdp::{AttachMode, XdpLink, XdpMemory, XdpOptions};

use crate::bed::{Cable, Family, Host, best_effort, pair, privileged};

const PROPERTIES: Properties = Properties {
    packet_bytes_max: &[1_464, 3_400],
    header_bytes: 64,
    write_header: best_effort,
    drops_when_dry: true,
};

fn open(host: &Host, options: XdpOptions, settings: Settings) -> XdpLink {
    let mut options = options;
    options.classifier.packet_bytes_max = settings.packet_bytes_max as u32;
    options.classifier.buffers = [settings.frames.min(settings.queue_packets as u32); 4];
    let memory = XdpMemory::new(options.frames_needed(), 4_096).expect("memory");
    host.within(|| XdpLink::open(&options, &memory)).expect("a link")
}

fn conforms(family: Family, mode: AttachMode) {
    if !privileged() {
        return;
    }
    let (hosts, cable): (_, Cable) = pair(3_500);
    check_driver(PROPERTIES, |settings| {
        let [a, b] = [0, 1].map(|end| {
            let mut options = cable.xdp(family, end);
            options.classifier.mode = mode;
            let link = open(&hosts[end], options, settings);
            assert_eq!(punctual_link::Link::mode(&link), format!("xdp ({mode}, copy)"));
            link
        });
        (a, b)
    });
}

#[test]
fn xdp_conforms() {
    conforms(Family::V4, AttachMode::Native);
}

#[test]
fn xdp_conforms_over_ipv6() {
    conforms(Family::V6, AttachMode::Native);
}

#[test]
fn xdp_conforms_in_the_stack() {
    conforms(Family::V4, AttachMode::Generic);
}
