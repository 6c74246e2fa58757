//! The self-description of a driver is effective wherever drivers are used: no other code has to know the
//! driver.

use std::path::Path;

use punctual_engine::profile::{PathSamples, profile_of};
use punctual_host::calibrate;
use punctual_host::config::drivers::{
    CheckedLink, DriverKind, Ends, LinkDriver, LinkInput, OpeningLinks, settings_of,
};
use punctual_host::config::{ConfigError, Driver, HostConfig, OtherTraffic, parse_with};
use punctual_host::finding::Finding;
use punctual_host::profile_rings::SharedRings;
use punctual_link::Link;
use rustix::thread::CapabilitySet;

const TUNNEL: Driver = Driver::new(&TunnelKind);

/// A driver that has a device of its own, needs a right, and is more expensive than all others.
struct TunnelKind;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tunnel {
    ends: Ends,
    device: String,
    /// How many tunnels the host has.
    siblings: usize,
}

impl DriverKind for TunnelKind {
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn medium(&self) -> &'static str {
        "a tunnel"
    }

    fn bypasses_kernel(&self) -> bool {
        true
    }

    fn rights(&self) -> CapabilitySet {
        CapabilitySet::SYS_ADMIN
    }

    fn claimed_keys(&self) -> &'static [&'static str] {
        &["queue", "kernel_rate"]
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        let (Some(ends), Some(device)) = (input.ends(), input.device()) else {
            return Err(input.refuse("driver \"tunnel\" needs device, local and peer"));
        };
        Ok(Box::new(Tunnel { ends, device: device.to_owned(), siblings: 0 }))
    }

    fn complete(&self, links: &mut [Box<dyn LinkDriver>]) {
        let siblings = settings_of::<Tunnel>(links.iter().map(|link| &**link)).len();
        let tunnels = links.iter_mut().filter_map(|link| link.settings_mut::<Tunnel>());
        tunnels.for_each(|tunnel| tunnel.siblings = siblings);
    }

    /// A driver that opens no link is detected.
    fn open(&self, _: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        Ok(Vec::new())
    }

    fn packet_cost(&self) -> u8 {
        u8::MAX
    }

    fn examine(&self, links: &[CheckedLink<'_>], _: bool) -> Vec<Finding> {
        vec![Finding::ok("tunnels", format!("{} of this host", links.len()))]
    }
}

impl LinkDriver for Tunnel {
    fn driver(&self) -> Driver {
        TUNNEL
    }

    fn ends(&self) -> Option<Ends> {
        Some(self.ends)
    }

    fn device(&self) -> Option<&str> {
        Some(&self.device)
    }

    fn examine(&self, link: &CheckedLink<'_>, _: bool) -> Vec<Finding> {
        vec![Finding::note("tunnel", link.name, "dig")]
    }
}

fn read(processor: &str, links: &[&str]) -> Result<HostConfig, String> {
    let mut text = format!(
        "[node]\nname = \"a\"\n[processor]\nbest_effort_host = true\n{processor}\n[signalling]\n\
         key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\n\
         [[host]]\nname = \"a\"\nid = 1\n[[host]]\nname = \"b\"\nid = 2\n[[host]]\nname = \"c\"\nid = 3\n"
    );
    for ((name, neighbour), link) in [("l", "b"), ("m", "c")].into_iter().zip(links) {
        text += &format!(
            "[[link]]\nname = \"{name}\"\nneighbour = \"{neighbour}\"\nrate = \"1Gbit/s\"\n{link}\n"
        );
    }
    parse_with(&text, Path::new("host.toml"), &[TUNNEL]).map_err(|error| error.to_string())
}

const ONE: &str = "driver = \"tunnel\"\ndevice = \"t0\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"";
const OTHER: &str = "driver = \"tunnel\"\ndevice = \"t1\"\nlocal = \"10.0.1.1\"\npeer = \"10.0.1.2\"";
const SOCKETS: &str = "driver = \"udp\"\nlocal = \"10.0.1.1\"\npeer = \"10.0.1.2\"";

#[test]
fn the_rules_of_links_hold_for_it() {
    let host = read("", &[ONE, OTHER]).expect("two tunnels");
    assert_eq!(settings_of::<Tunnel>(host.drivers.iter().map(|link| &**link))[1].siblings, 2);
    assert_eq!(host.other_traffic, [OtherTraffic::Unknown; 2]);
    assert!(
        host.warnings()[0].contains("set kernel_rate = \"10%\", then the daemon limits it"),
        "{:?}",
        host.warnings()
    );
    let shaped = read("", &[&format!("{ONE}\nkernel_rate = \"10%\"")]).expect("a key that it claims");
    assert_eq!(shaped.other_traffic, [OtherTraffic::Shaped]);
    let refused = |links: &[&str]| read("", links).expect_err("a mistake");
    let second = OTHER.replace("t1", "t0");
    assert!(refused(&[ONE, &second]).contains("has driver \"tunnel\" on device t0 already"));
    assert!(
        refused(&[&ONE.replace("10.0.0.2", "10.0.0.1")]).contains("the link would lead to this host itself")
    );
    assert!(
        refused(&[&format!("{ONE}\nxdp_mode = \"native\"")]).contains("xdp_mode: only for driver \"xdp\"")
    );
    // The error names the first driver of the table that has the key.
    assert!(refused(&[&format!("{SOCKETS}\nqueue = 1")]).contains("queue: only for driver \"xdp\""));
    let shared = SOCKETS.replace("driver", "device = \"t0\"\ndriver");
    let error = refused(&[ONE, &shared]);
    assert!(error.contains("driver \"tunnel\" needs a device of its own"), "{error}");
}

#[test]
fn its_rights_checks_and_costs_are_used() {
    let host = read("", &[SOCKETS, ONE.replace("10.0.0.", "10.0.2.").as_str()]).expect("a host");
    assert_eq!(host.drivers_in_use(), [TUNNEL, Driver::default()], "those first that bypass the kernel");
    let rights = host.drivers.iter().fold(CapabilitySet::empty(), |all, link| all | link.driver().rights());
    assert_eq!(rights, CapabilitySet::NET_BIND_SERVICE | CapabilitySet::SYS_ADMIN);
    let places: Vec<usize> = host.places_of(TUNNEL).collect();
    assert_eq!(places, [1]);
    let checked = CheckedLink { name: "m", settings: &*host.drivers[1], is_known: false };
    assert_eq!(checked.settings.examine(&checked, false)[0].found, "m");
    assert_eq!(TUNNEL.examine(&[checked], false)[0].found, "1 of this host");
    let unmeasured = TUNNEL.wires().err().expect("it has no wires").to_string();
    assert!(unmeasured.contains("driver \"tunnel\" cannot be measured on one host"), "{unmeasured}");
}

#[test]
fn a_host_goes_by_a_profile_of_its_dearest_driver() {
    let path = std::env::temp_dir().join(format!("punctual-own-driver-{}.toml", std::process::id()));
    let settled = |measured_on: Driver| {
        let profile = profile_of(&PathSamples::default(), measured_on.name(), "a test", false);
        profile.save(&path).expect("a file");
        let mut host =
            read(&format!("profile = {path:?}"), &[SOCKETS, &ONE.replace("0.0.", "0.2.")]).expect("a host");
        calibrate(&mut host, &SharedRings).map(|settled| settled.summary).map_err(|error| error.to_string())
    };
    let own = settled(TUNNEL).expect("measured on the dearest");
    assert!(own.contains("the profile of a test"), "{own}");
    let cheaper = settled(Driver::default()).expect_err("no driver replaces it");
    assert!(cheaper.contains("tunnel") && cheaper.contains("udp"), "{cheaper}");
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn a_driver_that_opens_fewer_links_than_it_has_is_found_out() {
    let host = read("", &[ONE]).expect("a host");
    let error = host.open_links().err().expect("no link").to_string();
    assert!(error.contains("driver \"tunnel\" has opened 0 of 1 links"), "{error}");
}
