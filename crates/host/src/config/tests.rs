//! The example is complete and parses to the documented values; each mistake gives one line that names it.

use std::path::Path;

use punctual_engine::profile::QUANTUM_MAX;
use punctual_link::kernel::{CareOptions, FIRST_CLASS, ShaperRate};
use punctual_link::xdp::{AttachMode, ZeroCopy};
use punctual_link::{Spins, Stream, UdpOptions};
use punctual_os::realtime::{RealTime, SchedulingClass};
use punctual_proto::config::{
    Admission, CpuConfig, Degraded, Interference, KernelTraffic, LinkConfig, Pacing, RunPolicy,
};
use punctual_proto::ids::NodeId;
use punctual_proto::{BitRate, Nanos, Ppm};

use super::drivers::xdp::XdpSettings;
use super::{DaemonConfig, Driver, HostConfig, LinkDriver, OtherTraffic, parse};
use crate::config::profile::GivenCosts;

mod mistakes;

const EXAMPLE: &str = include_str!("../../../../docs/punctuald.example.toml");
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn read(text: &str) -> Result<HostConfig, String> {
    parse(text, Path::new("/etc/host.toml")).map_err(|error| error.to_string())
}

/// The example with every commented key enabled, except those that exclude another.
fn every_key_set() -> String {
    let excluded = [
        "# queue = ",
        "# xdp_mode",
        "# zero_copy",
        "# flows_max",
        "# listeners_max",
        "# napi_priority",
        "# kernel_rate",
        "# interrupt_defer",
        "# spin",
        "# epoch_file",
        "# key_file",
        "# best_effort_host",
        "# deadline_period",
        "# period_max",
        "# activation = ",
        "# priority = 35",
        "# profile = ",
        "# plan = ",
        "# user = ",
        "# connect = ",
        "# listen = ",
    ];
    let is_key = |line: &str| {
        let key = line.trim_start_matches("# ").split(" = ").next().unwrap_or("");
        line.starts_with("# ")
            && line.contains(" = ")
            && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let lines = EXAMPLE.lines().map(|line| {
        let excluded = excluded.iter().any(|key| line.starts_with(key));
        if is_key(line) && !excluded { line.trim_start_matches("# ") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A small file with its parts.
fn small(processor: &str, link: &str, rest: &str) -> String {
    format!(
        "[node]\nname = \"a\"\n[processor]\n{processor}\n[signalling]\nkey = \"{KEY}\"\n\
         [[host]]\nname = \"a\"\nid = 1\n[[host]]\nname = \"b\"\nid = 2\n\
         [[link]]\nname = \"l\"\nneighbour = \"b\"\nrate = \"1Gbit/s\"\n{link}\n{rest}"
    )
}

const MEMORY: &str = "driver = \"memory\"";

/// The settings that a driver has read of a link.
fn settings<T: LinkDriver>(link: &dyn LinkDriver) -> &T {
    link.settings().unwrap_or_else(|| panic!("a link of another driver: {link:?}"))
}

#[test]
fn the_example_is_the_defaults() {
    let config = read(EXAMPLE).expect("the example");
    assert_eq!(config.node.id, NodeId(1));
    assert_eq!(config.node.links, [LinkConfig::new("to-r", NodeId(2), BitRate(40_000_000))]);
    assert_eq!(config.node.cpu, CpuConfig::default());
    assert_eq!(config.node.routes[0].via, [NodeId(2), NodeId(3)]);
    assert_eq!(config.node.signalling.domain_key[..3], [0, 1, 2]);
    assert_eq!(config.daemon, DaemonConfig::default());
    let class = SchedulingClass::Fifo { priority: 50 };
    assert_eq!(config.real_time, RealTime { class, cpu: None, lock_memory: true });
    let [link] = &config.drivers[..] else { panic!("one link: {:?}", config.drivers) };
    let udp: &UdpOptions = settings(&**link);
    let addresses = ["10.0.1.1", "10.0.1.2"].map(|text| text.parse().expect("an address"));
    let default = UdpOptions::new(addresses[0], addresses[1], 7_411, 7_412);
    assert_eq!(*udp, UdpOptions { frames: 8_192, socket_buffer_required: true, ..default });
}

#[test]
fn every_key_of_the_example_exists_with_the_default_that_it_shows() {
    let configured = every_key_set();
    let commented = |text: &str| text.lines().filter(|line| line.starts_with("# ")).count();
    assert!(commented(EXAMPLE) > commented(&configured) + 50, "{configured}");
    let mut explicit = read(&configured).unwrap_or_else(|error| panic!("{error}\n{configured}"));
    let implicit = read(EXAMPLE).expect("the example");
    let udp: &mut UdpOptions = explicit.drivers[0].settings_mut().expect("a UDP link");
    assert_eq!(udp.device.take().as_deref(), Some("eth0"));
    assert_eq!(explicit.real_time.cpu.take(), Some(1));
    assert_eq!(explicit.node.fragment_low_latency_bytes.take(), Some(1_400));
    assert_eq!(explicit.node.links[0].packet_best_effort_bytes_max.take(), Some(1_464));
    assert_eq!(explicit.node.links[0].rate_ceiling.take(), Some(BitRate(1_000_000_000)));
    assert!(explicit.profile.given.is_complete(), "{:?}", explicit.profile.given);
    explicit.profile.given = GivenCosts::default();
    assert_eq!(explicit.quantum.take(), Some(QUANTUM_MAX));
    explicit.node.cpu.quantum_packets = implicit.node.cpu.quantum_packets;
    assert_eq!(explicit, implicit);
}

#[test]
fn the_file_is_complete_in_the_example() {
    // Public fields of the tables in `file.rs` are the keys, and drivers have more. The example must contain
    // each of them.
    let fields = include_str!("file.rs")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ").and_then(|rest| rest.split_once(": ")))
        .map(|(field, _)| field)
        .chain(Driver::ALL.iter().flat_map(|driver| driver.own_keys().iter().copied()));
    let tables = [
        "node",
        "processor",
        "daemon",
        "signalling",
        "host",
        "link",
        "route",
        "costs",
        "priorities",
        "level",
        "tcp",
    ];
    for field in fields.filter(|field| !tables.contains(field)) {
        let is_set =
            EXAMPLE.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{field} = ")));
        assert!(is_set, "the example lacks {field}");
    }
}

#[test]
fn every_key_of_a_link_over_xdp_does_what_the_example_describes() {
    let configured = every_key_set();
    let xdp = |line: &str| {
        let key = line.trim_start_matches("# ").split(" = ").next().unwrap_or("").to_owned();
        let keys = [
            "queue",
            "xdp_mode",
            "zero_copy",
            "flows_max",
            "listeners_max",
            "napi_priority",
            "kernel_rate",
            "kernel_rate_max",
            "interrupt_defer",
        ];
        (keys.contains(&key.as_str()) || key.starts_with("spin"))
            .then(|| line.trim_start_matches("# ").to_owned())
    };
    let is_of_udp =
        |line: &&str| !["socket_", "interference_", "pace"].iter().any(|start| line.starts_with(start));
    let configured = configured.replace("\"exclusive\"", "\"shaped\"");
    let text: Vec<String> = configured
        .lines()
        .filter(is_of_udp)
        .map(|line| xdp(line).unwrap_or_else(|| line.replace("driver = \"udp\"", "driver = \"xdp\"")))
        .collect();
    let config = read(&text.join("\n")).unwrap_or_else(|error| panic!("{error}\n{}", text.join("\n")));
    let [link] = &config.drivers[..] else { panic!("one link: {:?}", config.drivers) };
    let settings: &XdpSettings = settings(&**link);
    let [link] = &config.node.links[..] else { panic!("one link") };
    assert_eq!((settings.classifier.device.as_str(), settings.queue, settings.frames), ("eth0", 0, 8_192));
    assert_eq!((settings.classifier.mode, settings.zero_copy), (AttachMode::Auto, ZeroCopy::Auto));
    assert_eq!((settings.spins, settings.pace_by_device, link.pace), (Spins::default(), true, Pacing::Clock));
    // 10 % of 40 Mbit/s; the least burst; both in the time of a link of 40 Mbit/s less 1 %.
    let kernel_rate = Some(ShaperRate { rate_bps: 4_000_000, burst_bytes: 6_168 });
    let care = CareOptions {
        kernel_rate,
        link_rate_bps: Some(39_600_000),
        napi_priority: Some(60),
        ..CareOptions::default()
    };
    assert_eq!(settings.care, care);
    assert_eq!(link.interference, Interference { sigma: Nanos(1_246_061), rho: Ppm(101_011) });
    // The example's 95 % of the rate would exceed the maximum.
    assert_eq!((link.kernel_share_max, link.follows()), (Ppm(950_000), true));
}

#[test]
fn an_explicit_burst_is_the_shapers() {
    let xdp =
        "driver = \"xdp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"\nrate_error = \"0%\"";
    let text = format!("{xdp}\nkernel_rate = \"100Mbit/s\"\ninterference_burst = \"80us\"");
    let config = read(&small("", &text, "")).expect("a link");
    let settings: &XdpSettings = settings(&*config.drivers[0]);
    assert_eq!(settings.care.kernel_rate, Some(ShaperRate { rate_bps: 100_000_000, burst_bytes: 10_000 }));
    let interference = Interference { sigma: Nanos::from_micros(80), rho: Ppm(100_000) };
    assert_eq!(config.node.links[0].interference, interference);
}

#[test]
fn the_kernels_rate_follows_admission_up_to_its_limit_where_that_is_sound() {
    let link = |rest: &str| {
        let xdp = "driver = \"xdp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"\nrate_error = \"0%\"";
        let config =
            read(&small("", &format!("{xdp}\nkernel_rate = \"100Mbit/s\"\n{rest}"), "")).expect("a link");
        let settings: &XdpSettings = settings(&*config.drivers[0]);
        (config.node.links[0].kernel_share_max, settings.care.link_rate_bps)
    };
    let followed = |share| (Ppm(share), Some(1_000_000_000));
    assert_eq!(link(""), followed(950_000));
    assert_eq!(link("kernel_rate_max = \"60%\""), followed(600_000));
    // This part of the configured rate is a larger part of the drain rate.
    assert_eq!(link("kernel_rate_max = \"95%\""), followed(950_000));
    assert_eq!(link("admission = \"d-order\""), followed(950_000));
    let fixed = (Ppm(0), None);
    for rest in [
        "kernel_rate_max = \"10%\"",
        "pace = \"completion\"",
        "admission = \"statistical\"",
        "interference_share = \"20%\"",
    ] {
        assert_eq!(link(rest), fixed, "{rest}");
    }
}

#[test]
fn configured_values_arrive() {
    let config = read(&small(
        "policy = \"fixed-priority\"\ncpu = 1\ncosts.send_packet = \"3us\"\nbest_effort_host = true",
        "driver = \"memory\"\npace = \"completion\"\nreaction = \"40us\"\nadmission = \"d-order\"\npacket = \"64KiB\"",
        "",
    ))
    .expect("a good file");
    assert_eq!(
        (config.node.cpu.run, config.node.cpu.admission),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY)
    );
    assert_eq!(config.node.cpu.costs.send_packet, Nanos::from_micros(3));
    assert_eq!(config.real_time, RealTime { cpu: Some(1), ..RealTime::BEST_EFFORT_HOST });
    let link = &config.node.links[0];
    assert_eq!(
        (link.pace, link.reaction, link.admission),
        (Pacing::Completion, Nanos(40_000), Admission::D_ORDER)
    );
    assert_eq!(link.packet_bytes_max, 65_536);
    let error = config.open_links().err().expect("no other end").to_string();
    assert!(error.contains("\"l\"") && error.contains("udp"), "{error}");
}

#[test]
fn links_of_one_address_share_its_ports() {
    let udp = |peer: u8| {
        format!("driver = \"udp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.{peer}\"\ndevice_rate = \"2Gbit/s\"")
    };
    let second = format!(
        "[[host]]\nname = \"c\"\nid = 3\n[[link]]\nname = \"m\"\nneighbour = \"c\"\nrate = \"1Gbit/s\"\n{}",
        udp(3)
    );
    let shared = |config: HostConfig| -> Vec<bool> {
        let of = |link: &dyn LinkDriver| settings::<UdpOptions>(link).shared_port;
        config.drivers.iter().map(|link| of(&**link)).collect()
    };
    assert_eq!(shared(read(&small("", &udp(2), &second)).expect("two links")), [true, true]);
    assert_eq!(shared(read(&small("", &udp(2), "")).expect("one link")), [false]);
}

#[test]
fn each_class_of_a_link_has_its_busy_polling_time() {
    let xdp = "driver = \"xdp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"";
    let spins = |keys: &str| {
        let config = read(&small("", &format!("{xdp}\n{keys}"), "")).expect("a link");
        let settings: &XdpSettings = settings(&*config.drivers[0]);
        Stream::ALL.map(|stream| settings.spins.after(stream) / 1_000)
    };
    assert_eq!(spins("spin = \"20us\""), [20; 4]);
    assert_eq!(spins("spin = \"20us\"\nspin_best_effort = \"0us\""), [20, 20, 20, 0]);
    let each = "spin_signalling = \"1us\"\nspin_low_latency = \"2us\"\nspin_guaranteed = \"3us\"";
    assert_eq!(spins(each), [1, 2, 3, 0]);
}

#[test]
fn a_processor_can_be_configured_to_spin() {
    let spin = |text: &str| read(&small(&format!("spin = \"{text}\""), MEMORY, "")).map(|config| config.spin);
    assert_eq!(spin("20us"), Ok(Nanos::from_micros(20)));
    assert_eq!(spin("always"), Ok(Nanos::MAX));
    assert!(spin("often").is_err_and(|text| text.contains("\"20us\" or \"always\"")));
}

#[test]
fn a_deadline_processor_is_neither_pinned_nor_has_a_priority() {
    let text = |rest: &str| small(&format!("class = \"deadline\"\n{rest}"), MEMORY, "");
    let config = read(&text("")).expect("a processor");
    assert_eq!(config.real_time.class, SchedulingClass::Deadline { period: Nanos::from_millis(1) });
    // The CPU time that the kernel withholds is interference: 5 % of a period and a tick, and of all time.
    let [own, usual] = [config.node.cpu.interference, CpuConfig::default().interference];
    assert_eq!(own.sigma - usual.sigma, Nanos::from_micros(250));
    assert_eq!(own.rho.0 - usual.rho.0, 50_000);
    for (rest, named) in [
        ("cpu = 1", "cannot be scheduled by deadline"),
        ("priority = 3", "has none: leave it out"),
        ("spin = \"always\"", "without doing work"),
        ("deadline_period = \"10us\"", "what the kernel accepts: give"),
        ("best_effort_host = true", "exclude each other"),
    ] {
        let error = read(&text(rest)).expect_err(rest);
        assert!(error.contains(named) && error.lines().count() == 1, "{error}");
    }
    assert!(read(&small("deadline_period = \"1ms\"", MEMORY, "")).is_err());
}

#[test]
fn two_hosts_of_one_address_need_ports_of_their_own() {
    let udp = "driver = \"udp\"\nlocal = \"127.0.0.1\"\npeer = \"127.0.0.1\"\n";
    let own = "data_port = 1\nsignalling_port = 2\npeer_data_port = 3\npeer_signalling_port = 4";
    assert!(read(&small("", &format!("{udp}{own}"), "")).is_ok());
    for crossed in [own.replace('3', "1"), own.replace('4', "1")] {
        let error = read(&small("", &format!("{udp}{crossed}"), "")).expect_err("its own port");
        assert!(error.contains("peer_data_port and peer_signalling_port"), "{error}");
    }
}

/// Two links to neighbours b and c, with these lines.
fn two(one: &str, another: &str) -> Result<HostConfig, String> {
    let second = format!(
        "[[host]]\nname = \"c\"\nid = 3\n[[link]]\nname = \"m\"\nneighbour = \"c\"\nrate = \"600Mbit/s\"\n{another}\n"
    );
    read(&small("", one, &second).replace("\nrate = \"1Gbit/s\"", "\nrate = \"400Mbit/s\""))
}

#[test]
fn links_of_one_device_fit_it_or_are_refused() {
    let udp = |local: u8, keys: &str| {
        format!("driver = \"udp\"\nlocal = \"10.0.0.{local}\"\npeer = \"10.0.{local}.9\"\n{keys}")
    };
    let whole = "device_rate = \"1Gbit/s\"";
    let named = "device = \"eth0\"\n";
    let refused = |one: &str, another: &str, words: &[&str]| {
        let error = two(one, another).expect_err("they do not fit");
        assert!(words.iter().all(|word| error.contains(word)) && error.lines().count() == 1, "{error}");
    };
    // The devices are the same by address and by name; the rate is stated on one of them only; the sum is too
    // much.
    refused(
        &udp(1, ""),
        &udp(1, "").replace(".1.9", ".1.8"),
        &["10.0.0.1", "\"l\" 400 Mbit/s", "device_rate"],
    );
    refused(&udp(1, named), &udp(2, named), &["device eth0", "device_rate"]);
    refused(&udp(1, &format!("{named}{whole}")), &udp(2, named), &["give each of them device_rate"]);
    let small = whole.replace("1G", "999M");
    let both = |rate: &str| [1, 2].map(|local| udp(local, &format!("{named}{rate}")));
    let [one, another] = both(&small);
    refused(&one, &another, &["drains 999 Mbit/s", "together claim 1000 Mbit/s", "lower their rates"]);
    let exclusive = format!("{another}\nkernel_traffic = \"exclusive\"").replace("999M", "1G");
    refused(&both(whole)[0], &exclusive, &["with other settings for kernel traffic"]);
    let xdp = another.replace("\"udp\"", "\"xdp\"").replace("999M", "1G");
    refused(&both(whole)[0], &xdp, &["a device of its own"]);
    let error = two(&udp(1, "device_rate = \"1Mbit/s\""), &udp(2, "")).expect_err("less than its link");
    assert!(error.contains("device_rate 1 Mbit/s is less"), "{error}");
    // Both fit: each waits for the other's window, two packets of 1,530 B at 990 Mbit/s.
    let [one, another] = both(whole);
    let config = two(&one, &another).expect("they fit");
    let waits = config.node.links.iter().map(|link| link.interference.sigma).collect::<Vec<_>>();
    assert_eq!(waits, [Nanos(24_728); 2]);
    // Other devices, and loopback, share nothing.
    assert!(two(&udp(1, named), &udp(2, "device = \"eth1\"")).is_ok());
    let loopback = |peer: u8| format!("driver = \"udp\"\nlocal = \"127.0.0.1\"\npeer = \"127.0.0.{peer}\"");
    assert!(two(&loopback(2), &loopback(3)).is_ok());
}

#[test]
fn what_is_known_of_kernel_traffic_decides_whether_a_link_is_degraded() {
    let link = |driver: &str, keys: &str| {
        let text = format!(
            "driver = \"{driver}\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"\n{keys}"
        );
        read(&small("", &text, ""))
    };
    let other_traffic = |driver: &str, keys: &str| {
        let config = link(driver, keys).expect(keys);
        (config.other_traffic[0], config.node.links[0].degraded())
    };
    let unknown = (OtherTraffic::Unknown, Some(Degraded::KernelTraffic));
    for driver in ["udp", "xdp"] {
        assert_eq!(other_traffic(driver, ""), unknown);
        assert_eq!(other_traffic(driver, "kernel_traffic = \"exclusive\""), (OtherTraffic::Exclusive, None));
        assert_eq!(other_traffic(driver, "interference_burst = \"1ms\""), (OtherTraffic::Stated, None));
    }
    // Each driver with the keys that fit the rest of the link.
    for (driver, keys, fix) in [
        ("udp", "", "set kernel_traffic = \"shaped\", then the daemon limits it"),
        ("udp", "rate_max = \"1Gbit/s\"", "set a rate instead of \"auto\""),
        ("xdp", "", "set kernel_rate = \"10%\", then the daemon limits it"),
    ] {
        let text = format!(
            "driver = \"{driver}\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"\n{keys}"
        );
        let text = small("", &text, "");
        let text = if keys.is_empty() { text } else { text.replace("rate = \"1Gbit/s\"", "rate = \"auto\"") };
        let [warning] = &read(&text).expect("a link").warnings()[..] else {
            panic!("one warning: {driver} {keys}")
        };
        assert!(
            warning.starts_with("link l is degraded: nothing bounds") && warning.contains(fix),
            "{warning}"
        );
    }
    assert!(link("udp", "kernel_traffic = \"exclusive\"").expect("a link").warnings().is_empty());
    assert_eq!(other_traffic("xdp", "kernel_rate = \"10%\""), (OtherTraffic::Shaped, None));
    assert_eq!(read(&small("", MEMORY, "")).expect("memory").other_traffic, [OtherTraffic::Nothing]);
    for (driver, keys, words) in [
        ("xdp", "kernel_traffic = \"shaped\"", "needs kernel_rate"),
        ("xdp", "kernel_traffic = \"exclusive\"\nkernel_rate = \"10%\"", "exclude each other"),
        ("udp", "kernel_traffic = \"shaped\"\ninterference_share = \"1%\"", "leave it out"),
        ("udp", "kernel_traffic = \"shaped\"\nsocket_priority = 3", "leave it out"),
        ("udp", "kernel_traffic = \"mine\"", "exclusive"),
    ] {
        let error = link(driver, keys).expect_err(keys);
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    let loopback =
        "driver = \"udp\"\nlocal = \"127.0.0.1\"\npeer = \"127.0.0.2\"\nkernel_traffic = \"shaped\"";
    assert!(read(&small("", loopback, "")).is_err_and(|error| error.contains("loopback")));
}

#[test]
fn tcp_connections_need_a_mode_that_shows_each_segment() {
    let link = |keys: &str| {
        let text =
            format!("driver = \"xdp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"\n{keys}");
        read(&small("", &text, "")).map(drop)
    };
    for mode in ["auto", "native", "generic"] {
        assert_eq!(link(&format!("xdp_mode = \"{mode}\"")), Ok(()), "{mode}");
        let with_flows = link(&format!("xdp_mode = \"{mode}\"\nflows_max = 1"));
        assert_eq!(with_flows.is_err(), mode == "generic", "{mode}");
    }
    let error = link("xdp_mode = \"generic\"\nflows_max = 1").expect_err("merged segments");
    assert!(error.contains("xdp_mode = \"native\"") && error.lines().count() == 1, "{error}");
}

#[test]
fn behind_a_shaper_an_urgent_packet_waits_for_two_bursts_and_a_timer() {
    let udp = "driver = \"udp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\nkernel_traffic = \"shaped\"\nrate_error = \"0%\"";
    let config = read(&small("", udp, "")).expect("a link");
    // 1 Gbit/s less what segmentation hides; 250 us of that.
    let rate = ShaperRate { rate_bps: 984_000_000, burst_bytes: 30_750 };
    assert_eq!(config.other_traffic, [OtherTraffic::Behind(rate)]);
    let link = &config.node.links[0];
    assert_eq!(link.interference, Interference { sigma: Nanos::from_micros(600), rho: Ppm(16_000) });
    assert_eq!((link.kernel_traffic, link.paced_rate()), (KernelTraffic::Behind, BitRate(984_000_000)));
    let options: &UdpOptions = settings(&*config.drivers[0]);
    assert_eq!(options.priority, FIRST_CLASS);
    // Without privileges nothing is shaped, so nothing is guaranteed.
    let mut unprivileged = config.clone();
    unprivileged.run_on_best_effort_host();
    assert_eq!(unprivileged.other_traffic, [OtherTraffic::Unknown]);
    assert_eq!(settings::<UdpOptions>(&*unprivileged.drivers[0]).priority, 6);
}

#[test]
fn a_link_that_measures_its_rate_excludes_keys_that_need_one() {
    let link = |driver: &str, keys: &str| {
        let text = format!(
            "driver = \"{driver}\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"no-such\"\n{keys}"
        );
        read(&small("", &text, "").replace("rate = \"1Gbit/s\"\n", "rate = \"auto\"\n"))
    };
    for driver in ["udp", "xdp"] {
        let config = link(driver, "rate_max = \"300Mbit/s\"").expect("a link");
        let one = &config.node.links[0];
        assert_eq!((one.rate_auto, one.rate), (true, BitRate(300_000_000)));
        // Without a stated speed of the device and without a rate, the measurement tries a gigabit.
        assert_eq!(link(driver, "").expect("a link").node.links[0].rate, BitRate(1_000_000_000));
    }
    for (driver, keys, words) in [
        ("udp", "kernel_traffic = \"shaped\"", "the shaper of kernel traffic needs the rate"),
        ("xdp", "kernel_rate = \"10%\"", "the shaper of kernel traffic needs the rate"),
        ("udp", "device_rate = \"2Gbit/s\"", "share"),
        ("udp", "rate_max = \"much\"", "Mbit/s"),
    ] {
        let error = link(driver, keys).expect_err(keys);
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    let memory = small("", MEMORY, "").replace("rate = \"1Gbit/s\"\n", "rate = \"auto\"\n");
    assert!(read(&memory).is_err_and(|error| error.contains("no wire")));
    let less = read(&small("", &format!("{MEMORY}\nrate_max = \"1Mbit/s\""), "")).expect_err("less");
    assert!(less.contains("rate_max 1 Mbit/s is less than rate 1000 Mbit/s"), "{less}");
    let auto =
        "driver = \"udp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndata_port = 9\nsignalling_port = 10\n";
    let other = "[[host]]\nname = \"c\"\nid = 3\n[[link]]\nname = \"m\"\nneighbour = \"c\"\nrate = \"auto\"\n\
         driver = \"udp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.3\"\n";
    let shared = read(&small("", auto, other)).expect_err("one device");
    assert!(shared.contains("give link \"m\" a rate instead of \"auto\""), "{shared}");
}

#[test]
fn a_file_that_is_not_there_is_named_with_the_fix() {
    let error = super::load(Path::new("/no/such.toml")).expect_err("nothing is there").to_string();
    assert!(error.contains("/no/such.toml") && error.contains("name a file that exists"), "{error}");
}

#[test]
fn an_unknown_key_is_answered_without_a_list_of_all() {
    let error = read(&small("", MEMORY, "colour = 1")).expect_err("no key");
    assert!(!error.contains("expected one of") && error.len() < 150, "{error}");
}

#[test]
fn a_device_that_is_not_there_is_named_with_the_fix() {
    let udp = "driver = \"udp\"\nlocal = \"127.0.0.1\"\npeer = \"127.0.0.2\"\ndevice = \"no-such-device\"";
    let mut config = read(&small("", udp, "")).expect("a file");
    config.run_on_best_effort_host();
    let error = config.open_links().err().expect("no device").to_string();
    assert!(error.starts_with("link \"l\": ") && error.lines().count() == 1, "{error}");
    assert!(error.contains("no-such-device") && error.contains("ip link"), "{error}");
}
