//! Hosts on the route of a channel: order, buffers and filters, whatever packets arrive.

mod common;

use common::hops;

fn holds(seeds: u64, property: fn(u64) -> Option<String>) {
    for seed in 0..seeds {
        assert_eq!(property(seed), None, "seed {seed}");
    }
}

#[test]
fn a_drivers_bucket_holds_all_that_may_be_in_time_at_once() {
    holds(200, hops::bucket_too_small);
}

#[test]
fn a_driver_has_buffers_for_all_that_its_node_keeps() {
    holds(100, hops::buffers_too_few);
}

#[test]
fn a_forwarders_link_serves_by_when_packets_could_be_there() {
    holds(200, hops::served_out_of_order);
    let decided = (0..200).filter(|seed| hops::order_of_service(*seed).is_some()).count();
    assert!(decided >= 100, "only {decided} of 200 seeds decide the order");
}

#[test]
fn best_effort_that_is_refused_gives_its_buffers_back() {
    holds(4, hops::best_effort_stuck);
}
