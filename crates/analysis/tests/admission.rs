//! Every policy's promises against the verified oracle, a link packet by packet, and hostile arrivals, on random sets.

mod checks;

const SETS: u64 = 300;

#[test]
fn no_policy_promises_less_than_the_verified_response_time() {
    for policy in ["edf", "d-order", "fixed-priority", "rmdp"] {
        for seed in 0..SETS {
            assert_eq!(checks::oracle::broken_bound(policy, seed), None, "seed {seed}");
        }
    }
}

#[test]
fn no_packet_of_an_admitted_channel_leaves_a_link_late() {
    for seed in 0..SETS {
        assert_eq!(checks::link::late_packet(seed), None, "seed {seed}");
    }
}

/// Stages that are all but full, release latencies up to nine tenths of a period: what the line beyond the steps of
/// demand leaves out would show here.
#[test]
fn nothing_that_edf_admits_is_due_before_there_is_time_for_it() {
    for seed in 0..10 * SETS {
        assert_eq!(checks::demand::overdue(seed), None, "seed {seed}");
    }
}

#[test]
fn no_lie_takes_more_than_the_contract() {
    for seed in 0..SETS {
        assert_eq!(checks::arrivals::excess(seed), None, "seed {seed}");
    }
}
