//! Uses the policy and the driver that were added, as all code outside of their files does: by their names.

use std::path::Path;

use punctual_analysis::{
    Admission, Blocking, Class, Demand, Interference, Nanos, Ppm, StageKey, StageModel, Urgency,
};
use punctual_host::calibrate;
use punctual_host::config::drivers::CheckedLink;
use punctual_host::config::{Driver, HostConfig, parse};
use punctual_host::profile_rings::SharedRings;
use rustix::thread::CapabilitySet;

fn main() {
    the_policy_decides();
    the_driver_is_in_the_table();
    the_configuration_reads_both();
    println!("the policy and the driver are known");
}

fn the_policy_decides() {
    let policy: Admission = "at-most-two".parse().expect("a name in the table");
    assert_eq!(Admission::ALL.into_iter().filter(|known| *known == policy).count(), 1);
    let mut stage = (policy.build)(StageModel {
        blocking: Blocking::Pipeline(Nanos::ZERO),
        interference: Interference::default(),
        utilisation_limit: Ppm::ONE,
    });
    let demand = Demand {
        cost: Nanos::from_micros(10),
        unit_cost_max: Nanos::from_micros(10),
        period: Nanos::from_millis(1),
        release_latency: Nanos::ZERO,
        early: Nanos::ZERO,
        urgency: Urgency::of_period(Class::Guaranteed, Nanos::from_millis(1)),
        soft: None,
    };
    for key in [1, 2] {
        let offer = stage.offer(&demand, Nanos::from_millis(1)).expect("room for two");
        stage.hold(StageKey(key), &demand, offer.bound).expect("the offer holds");
        assert_eq!(stage.bound(StageKey(key)), Some(offer.bound));
    }
    assert!(stage.offer(&demand, Nanos::from_millis(1)).is_err(), "a third channel is refused");
}

fn the_driver_is_in_the_table() {
    let driver = Driver::named("echoes").expect("a name in the table");
    assert!(Driver::ALL.contains(&driver) && Driver::by_name().contains(&driver));
    assert_eq!(driver.rights(), CapabilitySet::SYS_TIME);
    assert!(driver.wires().is_ok(), "the profile measures it");
}

fn the_configuration_reads_both() {
    let mut host = host("driver = \"echoes\"\nvalley = \"north\"").expect("a host");
    assert_eq!(host.node.cpu.admission.name, "at-most-two");
    assert_eq!(host.drivers_in_use().iter().map(|driver| driver.name()).collect::<Vec<_>>(), ["echoes"]);
    let driver = host.drivers[0].driver();
    let link = CheckedLink { name: "l", settings: &*host.drivers[0], is_known: false };
    assert_eq!(driver.examine(&[link], false)[0].found, "1 of this host");
    assert_eq!(link.settings.examine(&link, false)[0].found, "north of l");
    assert_eq!(host.open_links().expect("a link").len(), 1);
    let rows = calibrate(&mut host, &SharedRings).expect("costs").summary;
    assert!(rows.contains("configured"), "{rows}");
    let unknown = self::host("driver = \"echo\"").expect_err("no such driver");
    assert!(unknown.contains("expected one of") && unknown.contains("`echoes`"), "{unknown}");
    let foreign = self::host("driver = \"memory\"\nvalley = \"north\"").expect_err("a key of another driver");
    assert!(foreign.contains("valley"), "{foreign}");
}

fn host(link: &str) -> Result<HostConfig, String> {
    let text = format!(
        "[node]\nname = \"a\"\n[processor]\nbest_effort_host = true\nprofile_measure = false\nadmission = \"at-most-two\"\n\
         [signalling]\nkey = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\n\
         [[host]]\nname = \"a\"\nid = 1\n[[host]]\nname = \"b\"\nid = 2\n\
         [[link]]\nname = \"l\"\nneighbour = \"b\"\nrate = \"1Gbit/s\"\n{link}\n"
    );
    parse(&text, Path::new("host.toml")).map_err(|error| error.to_string())
}
