//! The texts of rates, names and refusals for users are correct.

use punctual_proto::api::{
    Breach, Cause, ChannelRefusal, HostName, MeasuredRate, RateRefusal, RateStatus, RefuseCause,
};
use punctual_proto::breach::Lateness;
use punctual_proto::fragment::{Fragmentation, packet_wire_bytes};
use punctual_proto::ids::{Name, NodeId};
use punctual_proto::{BitRate, Instant, Ppm};

fn measured(at_least: bool) -> MeasuredRate {
    MeasuredRate { rate: BitRate(20_000_000), error: Ppm(10_000), at_least, at: Instant(1) }
}

#[test]
fn a_measurement_shows_its_error_and_what_disturbed_it() {
    assert_eq!(measured(false).to_string(), "20.0 Mbit/s +-0.2");
    assert_eq!(measured(true).to_string(), "at least 20.0 Mbit/s +-0.2");
    let in_use = |channels, there| RateRefusal::InUse { channels, there }.to_string();
    assert!(in_use(1, false).starts_with("a guaranteed channel uses the link:"));
    assert!(in_use(2, true).starts_with("2 guaranteed channels use the link, as the neighbour reports:"));
    for (auto, known, is_known) in
        [(false, None, true), (true, None, false), (true, Some(measured(false)), true)]
    {
        let status = RateStatus { auto, measured: known, ..RateStatus::default() };
        assert_eq!(status.is_known(), is_known);
    }
}

/// The true rate is between the measured one less its error and the measured one with it, to the bit.
#[test]
fn a_measured_rate_is_known_from_its_lower_to_its_upper_bound() {
    for (rate, error, upper) in [
        // A millionth of a terabit is a megabit.
        (1_000_000_000_000, 1, 1_000_001_000_000),
        (1_000_000_000_000, 250_000, 1_250_000_000_000),
        (20_000_000, 10_000, 20_200_000),
        // Less than a bit of error is none.
        (999_999, 1, 999_999),
        (1_000_000, 1, 1_000_001),
        (7, 0, 7),
        (u64::MAX, 1, u64::MAX),
    ] {
        let of = MeasuredRate { rate: BitRate(rate), error: Ppm(error), ..measured(false) };
        assert_eq!(of.at_most(), BitRate(upper), "{rate} {error}");
        assert!(of.lower_bound() <= of.rate && of.rate <= of.at_most());
    }
}

#[test]
fn causes_have_significant_digits_only() {
    for (rate, reported) in [
        (999_001, "1000 kbit/s"),
        (1_000_000, "1.0 Mbit/s"),
        (99_999_999, "100.0 Mbit/s"),
        (100_000_000, "100 Mbit/s"),
        (2_500_000_000, "2500 Mbit/s"),
    ] {
        let breach =
            Breach { late: Lateness::default(), cause: Cause::ForeignTraffic { rate: BitRate(rate) } };
        assert!(breach.to_string().contains(reported), "{breach} instead of {reported}");
    }
}

#[test]
fn a_refusal_names_the_host_where_its_name_is_known() {
    let refusal = |hosts| {
        let (stages, cause) = (Vec::new(), RefuseCause::Exhausted);
        ChannelRefusal { node: NodeId(7), cause, offer: None, stages, hosts }.to_string()
    };
    let name = Name::new("relay").expect("a name");
    let host = |node| HostName { node: NodeId(node), name: name.clone() };
    let another = HostName { node: NodeId(9), name: Name::new("sink").expect("a name") };
    let other = refusal(vec![host(8)]);
    for hosts in [vec![host(7)], vec![host(7), another.clone()], vec![another, host(7)]] {
        let known = refusal(hosts);
        assert!(known.starts_with("host relay"), "{known}");
    }
    assert!(!other.starts_with("host ") && !other.contains("relay") && other.contains('7'), "{other}");
}

#[test]
fn names_are_of_letters_digits_and_three_signs() {
    for good in ["a", "h-1", "a_b.c", "Z9"] {
        assert!(Name::new(good).is_ok(), "{good}");
    }
    for bad in ["", "a b", "a/b", "ä", "a\n"] {
        assert!(Name::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_largest_packet_of_a_short_message_is_the_message() {
    let unit = |bytes| Fragmentation::new(bytes, 100).expect("it fits").unit_wire_bytes(66);
    assert_eq!(
        [40, 99, 100, 101, 900].map(unit),
        [40, 99, 100, 100, 100].map(|bytes| packet_wire_bytes(bytes, 66))
    );
}
