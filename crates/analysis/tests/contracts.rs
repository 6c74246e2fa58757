//! Ranges of contracts, and names and figures as shown to users.

use punctual_analysis::contract::{
    BURST_MESSAGES_MAX, Contract, ContractError, INTERVAL_MIN, MESSAGE_BYTES_MAX, SPAN_MAX,
};
use punctual_analysis::sharing::Sharing;
use punctual_analysis::{Activation, Guarantee, Instant, Late, Nanos, Ppb, Ppm, Rate, Statistical};

fn contract() -> Contract {
    Contract::new(1_000, Rate::per_second(50).unwrap(), 2, Nanos::from_millis(40)).unwrap()
}

#[test]
fn each_number_of_a_contract_has_its_range() {
    let with = |change: fn(&mut Contract)| {
        let mut contract = contract();
        change(&mut contract);
        contract.validate()
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|c| c.message_bytes_max = 0), Err(ContractError::MessageBytes { bytes: 0 }));
    let bytes = MESSAGE_BYTES_MAX + 1;
    assert_eq!(
        with(|c| c.message_bytes_max += MESSAGE_BYTES_MAX - 999),
        Err(ContractError::MessageBytes { bytes })
    );
    assert_eq!(with(|c| c.burst_messages_max = 0), Err(ContractError::Burst { messages: 0 }));
    let messages = BURST_MESSAGES_MAX + 1;
    assert_eq!(
        with(|c| c.burst_messages_max = BURST_MESSAGES_MAX + 1),
        Err(ContractError::Burst { messages })
    );
    assert_eq!(with(|c| c.deadline = Nanos::ZERO), Err(ContractError::Deadline { deadline: Nanos::ZERO }));
    assert_eq!(with(|c| c.deadline = Nanos::MAX), Err(ContractError::Deadline { deadline: Nanos::MAX }));
    let periodic = with(|c| c.activation = Activation::Periodic { period: Nanos::ZERO, packets: 1 });
    assert!(matches!(periodic, Err(ContractError::Activation(_))), "{periodic:?}");
}

/// The largest value that is allowed, and the smallest, are valid; the next ones are not.
#[test]
fn ranges_end_exactly_where_they_say() {
    type Change = fn(Contract, u64) -> Contract;
    let ranges: [(&str, u64, u64, Change); 4] = [
        ("bytes", 1, MESSAGE_BYTES_MAX.into(), |c, n| Contract { message_bytes_max: n as u32, ..c }),
        ("burst", 1, BURST_MESSAGES_MAX.into(), |c, n| Contract { burst_messages_max: n as u32, ..c }),
        ("deadline", 1, SPAN_MAX.0, |c, n| Contract { deadline: Nanos(n), ..c }),
        ("interval", INTERVAL_MIN.0, SPAN_MAX.0, |c, n| Contract {
            rate_max: Rate::every(Nanos(n)).unwrap_or(c.rate_max),
            ..c
        }),
    ];
    for (what, least, most, change) in ranges {
        for value in [least - 1, least, least + 1, most - 1, most, most + 1] {
            let valid = change(contract(), value).validate().is_ok();
            assert_eq!(valid, (least..=most).contains(&value), "{what} {value}");
        }
    }
    let allowed = |jitter: u64| Contract { jitter: Some(Nanos(jitter)), ..contract() }.validate();
    assert_eq!([0, SPAN_MAX.0 - 1, SPAN_MAX.0].map(allowed), [Ok(()); 3]);
    let jitter = SPAN_MAX + Nanos(1);
    assert_eq!(allowed(jitter.0), Err(ContractError::Jitter { jitter }));
}

/// Soft is what may miss by its contract, or is dropped when it is late: each alone is enough.
#[test]
fn what_may_drop_late_messages_is_soft() {
    let hard = contract();
    let soft = Contract { late: Late::Drop, ..hard };
    let miss_ratio = Ppb::new(1_000).unwrap();
    let terms = Statistical { mean_rate: hard.rate_max, mean_over: Nanos::from_secs(1), miss_ratio };
    let statistical = Contract { statistical: Some(terms), ..hard };
    let both = Contract { late: Late::Drop, ..statistical };
    assert_eq!(hard.guarantee(), Guarantee::Hard);
    assert_eq!([soft, statistical, both].map(|contract| contract.guarantee()), [Guarantee::Soft; 3]);
    assert_eq!((hard.packets_max(400), hard.packets_max(0)), (3, 1_000));
    assert!(hard.policed_interval() < hard.interval());
}

#[test]
fn spans_and_instants_saturate_and_read_well() {
    let shown: Vec<String> =
        [9_999, 10_000, 12_345_678, 10_000_000_000].map(|ns| Nanos(ns).to_string()).into();
    assert_eq!(shown, ["9999 ns", "10.0 us", "12.35 ms", "10.00 s"]);
    assert_eq!(Nanos::from_secs(u64::MAX), Nanos(u64::MAX));
    assert_eq!((Nanos(1_500_000).as_millis_f64(), Nanos(1_500_000_000).as_secs_f64()), (1.5, 1.5));
    assert_eq!((Nanos(7).div_ceil(Nanos(2)), Nanos(7).div_ceil(Nanos::ZERO)), (4, u64::MAX));
    assert_eq!((Instant(5).minus(Instant(9)), Instant(9).minus(Instant(5))), (-4, 4));
    assert_eq!(
        (Instant(u64::MAX).minus(Instant(0)), Instant(0).minus(Instant(u64::MAX))),
        (i64::MAX, i64::MIN)
    );
    assert_eq!((Instant(5).since(Instant(9)), Instant(5).offset(-9)), (Nanos::ZERO, Instant(0)));
    assert_eq!(Ppm(u32::MAX).of(Nanos::MAX), Nanos::MAX);
}

#[test]
fn ways_of_sharing_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = Sharing::ALL.iter().map(|way| way.name()).collect();
    assert_eq!(names.len(), Sharing::ALL.len());
}

/// A contract that is out of range cannot be constructed.
#[test]
fn a_contract_is_made_only_within_its_ranges() {
    let Contract { message_bytes_max: bytes, rate_max: rate, burst_messages_max: burst, deadline, .. } =
        contract();
    assert_eq!(Contract::new(bytes, rate, burst, deadline), Ok(contract()));
    assert!(Contract::new(0, rate, burst, deadline).is_err());
    assert!(Contract::new(MESSAGE_BYTES_MAX + 1, rate, burst, deadline).is_err());
    assert!(Contract::new(bytes, rate, 0, deadline).is_err());
    assert!(Contract::new(bytes, rate, BURST_MESSAGES_MAX + 1, deadline).is_err());
    assert!(Contract::new(bytes, rate, burst, Nanos::ZERO).is_err());
}
