//! The costs of a host with a profile, and without one.

use std::path::{Path, PathBuf};

use punctual_engine::profile::{Costs, PathSamples, Profile, profile_of};
use punctual_host::config::{self, HostConfig};
use punctual_host::profile_rings::SharedRings;
use punctual_host::{calibrate, check_profile};
use punctual_proto::config::CostSource;
use punctual_proto::{Nanos, Ppm};

#[test]
fn a_profile_over_kernel_sockets_replaces_one_over_xdp_with_a_note() {
    let xdp = "driver = \"xdp\"\ndevice = \"eth0\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"";
    let file = File::of("stands-in", |profile| profile.machine.driver = "udp".into());
    let processor = format!("profile = {:?}", file.0);
    let settled = calibrate(&mut host_over(xdp, &processor), &SharedRings).expect("its costs are higher");
    assert!(settled.summary.contains("kernel sockets"), "{settled}");
    assert!(settled.warnings.iter().any(|line| line.contains("--driver xdp")), "{:?}", settled.warnings);
    let file = File::of("too-cheap", |profile| profile.machine.driver = "memory".into());
    let error =
        calibrate(&mut host_over(xdp, &format!("profile = {:?}", file.0)), &SharedRings).expect_err("memory");
    assert!(error.to_string().contains("driver"), "{error}");
}

fn host(processor: &str) -> HostConfig {
    host_over("driver = \"memory\"", processor)
}

fn host_over(driver: &str, processor: &str) -> HostConfig {
    any_host(driver, &format!("best_effort_host = true\n{processor}"))
}

fn any_host(driver: &str, processor: &str) -> HostConfig {
    let text = format!(
        "[node]\nname = \"a\"\n[processor]\n{processor}\n[signalling]\n\
         key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\n\
         [[host]]\nname = \"a\"\nid = 1\n[[host]]\nname = \"b\"\nid = 2\n\
         [[link]]\nname = \"l\"\nneighbour = \"b\"\n{driver}\nrate = \"1Gbit/s\"\n"
    );
    config::parse(&text, Path::new("host.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// A profile in a file of its own, which is removed at the end.
struct File(PathBuf);

impl File {
    fn of(name: &str, change: impl FnOnce(&mut Profile)) -> Self {
        let path = std::env::temp_dir().join(format!("punctual-{}-{name}.toml", std::process::id()));
        let costs = Costs {
            send_message_ns: 1_000,
            send_packet_ns: 4_000,
            send_packet_later_ns: 2_000,
            forward_packet_ns: 6_000,
            receive_packet_ns: 3_000,
            deliver_message_ns: 800,
            copy_kib_ns: 100,
            cold_start_ns: 20_000,
            segment_ns: 4_000,
            segment_call_ns: 2_000,
        };
        let mut profile = profile_of(&PathSamples::default(), "memory", "a test", false);
        (profile.costs, profile.turn_ns) = (costs, 1_000);
        change(&mut profile);
        profile.save(&path).expect("a file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("it is there");
    }
}

#[test]
fn a_profile_sets_the_costs_with_its_margin_and_explicit_ones_override() {
    let file = File::of("own", |_| {});
    let mut config = host(&format!(
        "profile = {:?}\nprofile_margin = \"50%\"\n[processor.costs]\ndeliver_message = \"9us\"\n\
         segment_call = \"7us\"",
        file.0
    ));
    let settled = calibrate(&mut config, &SharedRings).expect("a profile of this machine");
    let costs = config.node.cpu.costs;
    assert_eq!((costs.send_packet, costs.send_packet_later), (Nanos(6_000), Nanos(3_000)));
    assert_eq!(costs.deliver_message, Nanos(9_000));
    assert_eq!((config.segment.unit, config.segment.run), (Nanos(6_000), Nanos(7_000)));
    assert_eq!(config.node.cpu.costs_from, CostSource::Measured { margin: Ppm(500_000), short: false });
    assert!(settled.summary.contains("a test"), "{settled}");
}

#[test]
fn a_foreign_profile_is_refused_or_accepted_as_such() {
    let file = File::of("foreign", |profile| profile.machine.host = "elsewhere".into());
    let error = calibrate(&mut host(&format!("profile = {:?}", file.0)), &SharedRings)
        .expect_err("foreign")
        .to_string();
    assert!(
        error.contains("elsewhere") && error.contains("punctual profile") && !error.contains('\n'),
        "{error}"
    );
    let mut config = host(&format!("profile = {:?}\nprofile_mismatch = \"accept\"", file.0));
    let settled = calibrate(&mut config, &SharedRings).expect("accepted");
    assert!(matches!(settled.costs_from, CostSource::Foreign { .. }) && settled.summary.contains("DEGRADED"));
}

#[test]
fn a_configuration_that_promises_more_than_was_measured_is_reported() {
    let file = File::of("slow", |profile| profile.wake_up_ns = 3_000_000);
    let settled = calibrate(&mut host(&format!("profile = {:?}", file.0)), &SharedRings).expect("a profile");
    let reported =
        |what: &str| settled.warnings.iter().any(|line| line.contains(what) && line.contains("set "));
    assert!(reported("release_latency") && reported("reaction"), "{:?}", settled.warnings);
    let generous = "release_latency = \"5ms\"";
    let file = File::of("calm", |_| {});
    let settled = calibrate(&mut host(&format!("profile = {:?}\n{generous}", file.0)), &SharedRings)
        .expect("a profile");
    assert!(settled.warnings.is_empty(), "{:?}", settled.warnings);
}

/// The packets of a unit that a host with the costs of [`File::of`] settles on, in admission and in `status`.
fn quantum_of(processor: &str) -> (u32, Vec<String>) {
    let file = File::of("quantum", |_| {});
    let mut config = host(&format!("profile = {:?}\nprofile_margin = \"0%\"\n{processor}", file.0));
    let settled = calibrate(&mut config, &SharedRings).expect("a profile");
    assert_eq!(config.node.cpu.quantum_packets, settled.quantum_packets);
    (settled.quantum_packets, settled.warnings)
}

#[test]
fn the_quantum_is_what_fits_unless_it_is_configured() {
    // A packet takes at most 6.2 us there, its message 1 us, a turn 1 us besides its 50 us of work.
    assert_eq!(quantum_of("").0, 8);
    assert_eq!(quantum_of("release_latency = \"82us\"").0, 4);
    let (quantum, warnings) = quantum_of("quantum = 20");
    let reported = |line: &String| line.starts_with("reaction 100.0 us") && line.contains("20 packets");
    assert!(quantum == 20 && warnings.iter().any(reported), "{warnings:?}");
    assert_eq!(quantum_of("quantum = 1").0, 1);
}

#[test]
fn costs_that_are_configured_settle_the_quantum_too() {
    let mut config = host("");
    let settled = calibrate(&mut config, &SharedRings).expect("as configured");
    assert_eq!((settled.quantum_packets, settled.warnings.as_slice()), (7, &[][..]));
    assert_eq!(config.node.cpu.quantum_packets, 7);
    let settled = calibrate(&mut host("quantum = 8"), &SharedRings).expect("as configured");
    assert_eq!((settled.quantum_packets, settled.warnings.len()), (8, 1), "{:?}", settled.warnings);
}

#[test]
fn what_is_not_to_be_measured_is_as_configured() {
    for processor in ["", "profile_measure = false"] {
        let mut config = host(processor);
        let before = (config.node.cpu.costs, config.segment);
        let settled = calibrate(&mut config, &SharedRings).expect("as configured");
        let costs = (config.node.cpu.costs, config.segment);
        assert_eq!((costs, settled.costs_from), (before, CostSource::Configured));
        assert_eq!((config.segment.run, config.segment.unit), (Nanos(5_000), Nanos(15_000)));
    }
}

/// The check of a configuration says the same as the start.
#[test]
fn a_host_that_measures_nothing_needs_the_file_that_it_names() {
    let missing = "profile = \"/nonexistent/profile.toml\"\n";
    let quiet = format!("{missing}profile_measure = false");
    for (mut config, why) in [
        (host(missing), "a best-effort host measures no profile"),
        (any_host("driver = \"memory\"", &quiet), "profile_measure = false measures no profile"),
    ] {
        let checked = check_profile(&config).expect_err("no file").to_string();
        let error = calibrate(&mut config, &SharedRings).expect_err("no file").to_string();
        assert_eq!(error, checked);
        for part in
            ["/nonexistent/profile.toml: the file does not exist", why, "--output /nonexistent/profile.toml"]
        {
            assert!(error.contains(part), "{error}");
        }
    }
    check_profile(&any_host("driver = \"memory\"", missing)).expect("it is measured at the start");
    let file = File::of("elsewhere", |profile| profile.machine.host = "elsewhere".into());
    let foreign = check_profile(&host(&format!("profile = {:?}", file.0))).expect_err("foreign").to_string();
    assert!(foreign.contains("elsewhere"), "{foreign}");
    check_profile(&host(&format!("profile = {:?}\nprofile_mismatch = \"accept\"", file.0)))
        .expect("accepted");
}
