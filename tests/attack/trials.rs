//! One test for each mechanism.

use crate::attacker::Mechanism;
use crate::judge::hold;

/// This file.
const TRIALS: &str = include_str!("trials.rs");

#[test]
fn every_mechanism_has_its_trial() {
    let untried: Vec<_> = Mechanism::all()
        .map(|mechanism| mechanism.name)
        .filter(|name| !TRIALS.contains(&format!("hold(\"{name}\")")))
        .collect();
    assert!(untried.is_empty(), "{untried:?}");
}

#[test]
fn a_crowd_at_a_bell_makes_no_turn_longer() {
    hold("crowd-at-bell");
}

#[test]
fn a_crowd_and_a_flood_at_a_doorbell_make_no_turn_longer() {
    hold("crowd-and-flood-at-doorbells");
}

#[test]
fn a_crowd_at_a_connection_makes_no_turn_longer() {
    hold("crowd-at-connection");
}

#[test]
fn a_bell_that_is_read_into_a_hollow_page_stops_no_other() {
    hold("bell-into-hollow");
}

#[test]
fn a_bell_that_is_read_into_a_page_of_a_file_server_stops_no_other() {
    hold("bell-into-served");
}

#[test]
fn a_bell_that_is_read_into_a_page_whose_fault_waits_stops_no_other() {
    hold("bell-into-handled");
}

#[test]
fn a_doorbell_that_is_read_into_a_page_of_a_file_server_stops_no_other() {
    hold("doorbell-into-served");
}

#[test]
fn a_doorbell_that_is_read_into_a_page_whose_fault_waits_stops_no_other() {
    hold("doorbell-into-handled");
}

#[test]
fn a_connection_that_is_read_into_a_page_of_a_file_server_stops_no_other() {
    hold("connection-into-served");
}

#[test]
fn a_connection_that_is_read_into_a_page_whose_fault_waits_stops_no_other() {
    hold("connection-into-handled");
}

#[test]
fn a_bell_whose_writer_waits_delays_no_other() {
    hold("full-bell");
}

#[test]
fn nests_of_epolls_around_what_is_shared_harm_no_other() {
    hold("nests-of-epolls");
}

#[test]
fn signals_to_a_crowd_at_every_change_harm_no_other() {
    hold("signals-at-every-change");
}

#[test]
fn extreme_options_of_its_sockets_harm_no_other() {
    hold("options-of-sockets");
}

#[test]
fn a_crowd_that_peeks_at_answers_harms_no_other() {
    hold("crowd-of-peekers");
}

#[test]
fn sockets_in_flight_in_one_another_harm_no_other() {
    hold("in-flight-in-cycles");
}

#[test]
fn a_storm_of_forks_that_hold_everything_harms_no_other() {
    hold("storm-of-forks");
}

#[test]
fn a_stopped_program_that_holds_everything_harms_no_other() {
    hold("stopped-holders");
}

#[test]
fn doorbells_stuffed_with_bytes_and_descriptors_harm_no_other() {
    hold("stuffed-doorbells");
}

#[test]
fn pages_taken_away_from_a_ring_harm_no_other() {
    hold("pages-taken-away");
}

#[test]
fn files_of_a_ring_that_are_opened_anew_harm_no_other() {
    hold("files-opened-anew");
}

#[test]
fn files_of_a_ring_mapped_a_thousandfold_harm_no_other() {
    hold("mapped-a-thousandfold");
}

#[test]
fn thousands_of_locks_on_files_of_a_ring_harm_no_other() {
    hold("locks-on-files");
}

#[test]
fn a_crowd_that_watches_files_of_a_ring_harms_no_other() {
    hold("watched-files");
}

#[test]
fn rings_full_of_changing_nonsense_harm_no_other() {
    hold("scribbled-rings");
}

#[test]
fn unread_answers_harm_no_other() {
    hold("answers-unread");
}

#[test]
fn asking_for_all_channels_without_end_harms_no_other() {
    hold("channels-without-end");
}

#[test]
fn asking_for_the_status_without_end_harms_no_other() {
    hold("status-without-end");
}

#[test]
fn asking_for_names_without_end_harms_no_other() {
    hold("names-without-end");
}

#[test]
fn probing_for_the_worst_contracts_without_end_harms_no_other() {
    hold("probes-without-end");
}

#[test]
fn opening_and_closing_the_worst_contracts_loses_no_message_of_others() {
    hold("opens-and-closes");
}

#[test]
fn a_listener_that_never_consents_harms_no_other() {
    hold("never-consents");
}

#[test]
fn asking_sources_that_never_answer_harms_no_other() {
    hold("asks-of-sources");
}

#[test]
fn a_storm_of_connections_harms_no_other() {
    hold("storm-of-connections");
}

#[test]
fn connections_that_never_greet_harm_no_other() {
    hold("never-greets");
}

#[test]
fn the_longest_and_deepest_nonsense_harms_no_other() {
    hold("longest-nonsense");
}

#[test]
fn empty_and_broken_packets_harm_no_other() {
    hold("empty-packets");
}

#[test]
fn names_and_reasons_of_the_greatest_length_harm_no_other() {
    hold("longest-names");
}

#[test]
fn descriptors_sent_without_end_harm_no_other() {
    hold("descriptors-sent");
}

#[test]
fn doorbells_of_as_many_flows_as_one_user_may_have_harm_no_other() {
    hold("doorbells-of-flows");
}

#[test]
fn asking_and_hanging_up_harms_no_other() {
    hold("asks-and-hangs-up");
}

#[test]
fn taking_every_descriptor_harms_no_other() {
    hold("takes-every-descriptor");
}

#[test]
fn many_ends_at_once_harm_no_other() {
    hold("many-ends-at-once");
}

#[test]
fn rings_that_come_and_go_harm_no_other() {
    hold("rings-come-and-go");
}

#[test]
fn as_many_rings_as_possible_harm_no_other() {
    hold("hoarded-rings");
}

#[test]
fn programs_killed_in_a_storm_harm_no_other() {
    hold("killed-in-a-storm");
}

#[test]
fn a_sender_that_fills_its_ring_without_end_harms_no_other() {
    hold("greedy-senders");
}

#[test]
fn threads_of_the_highest_priority_allowed_harm_no_other() {
    hold("threads-of-all-priorities");
}

#[test]
fn a_crowd_that_inspects_the_process_harms_no_other() {
    hold("looked-at-in-proc");
}

#[test]
fn a_flood_of_the_ports_from_within_the_host_harms_no_other() {
    hold("flood-from-within");
}

#[test]
fn forged_signalling_over_udp_harms_no_channel() {
    hold("forged-signalling-udp");
}

#[test]
fn forged_signalling_over_xdp_harms_no_channel() {
    hold("forged-signalling-xdp");
}

#[test]
fn data_with_wrong_cookies_over_udp_harms_no_channel() {
    hold("wrong-cookies-udp");
}

#[test]
fn data_with_wrong_cookies_over_xdp_harms_no_channel() {
    hold("wrong-cookies-xdp");
}

#[test]
fn a_flood_of_the_smallest_packets_over_udp_harms_no_channel() {
    hold("smallest-packets-udp");
}

#[test]
fn a_flood_of_the_smallest_packets_over_xdp_harms_no_channel() {
    hold("smallest-packets-xdp");
}

#[test]
fn fragments_that_never_end_harm_no_channel() {
    hold("fragments");
}

#[test]
fn fragments_that_never_end_over_xdp_harm_no_channel() {
    hold("fragments-xdp");
}

#[test]
fn frames_with_a_tag_harm_no_channel() {
    hold("tagged-frames-xdp");
}

#[test]
fn a_flood_of_strange_neighbours_harms_no_channel() {
    hold("strange-neighbours");
}

#[test]
fn recorded_signalling_sent_again_harms_no_channel() {
    hold("hellos-again");
}

#[test]
fn recorded_data_sent_again_harms_no_other_channel() {
    hold("data-again");
}

#[test]
fn recorded_signalling_with_another_bit_harms_no_channel() {
    hold("changed-recordings");
}

#[test]
fn recorded_signalling_with_another_number_harms_no_channel() {
    hold("renumbered-recordings");
}

#[test]
fn forged_errors_about_paths_over_udp_harm_no_channel() {
    hold("errors-about-paths");
}

#[test]
fn forged_errors_about_paths_over_xdp_harm_no_channel() {
    hold("errors-about-paths-xdp");
}

#[test]
fn large_rings_that_come_and_go_keep_no_processor_waiting_for_memory() {
    hold("large-rings");
}

#[test]
fn large_rings_of_killed_programs_keep_no_processor_waiting_for_memory() {
    hold("large-rings-killed");
}

#[test]
fn rings_of_the_greatest_bursts_that_are_filled_at_once_make_no_turn_longer() {
    hold("full-rings");
}

#[test]
fn files_that_are_kept_harm_no_other() {
    hold("kept-files");
}

#[test]
fn a_crowd_at_news_harms_no_other() {
    hold("crowd-at-news");
}

#[test]
fn saying_that_a_ring_is_attached_without_end_harms_no_other() {
    hold("attached-without-end");
}
