//! Every order of small scenarios. `preemptions`: none where all orders can be tried in a few seconds.

use punctual_models::scenarios as s;

#[test]
fn one_slot_out() {
    s::outgoing_messages_arrive_and_both_sides_sleep(1, 2, Some(2));
}

#[test]
fn two_slots_out() {
    s::outgoing_messages_arrive_and_both_sides_sleep(2, 2, Some(2));
}

#[test]
fn messages_are_freed_on_two_threads() {
    s::messages_are_freed_on_two_threads();
}

#[test]
fn closing_wakes_the_sender() {
    s::closing_wakes_the_sender();
}

#[test]
fn one_slot_in() {
    s::incoming_messages_arrive_and_the_reader_sleeps(1, 2, Some(2));
}

#[test]
fn two_slots_in() {
    s::incoming_messages_arrive_and_the_reader_sleeps(2, 2, Some(3));
}

#[test]
fn closing_wakes_the_reader() {
    s::closing_wakes_the_reader();
}

#[test]
fn a_writer_that_waits_for_room_gets_every_message_in() {
    s::a_writer_that_waits_for_room_gets_every_message_in();
}

#[test]
fn an_alternating_ring_gives_every_message() {
    s::an_alternating_ring_gives_every_message();
}

#[test]
fn every_bell_is_rung() {
    s::every_bell_is_rung(Some(2));
}

#[test]
fn slots_are_given_up_on_another_thread() {
    s::slots_are_given_up_on_another_thread();
}

#[test]
fn packets_of_a_memory_link_arrive() {
    s::packets_of_a_memory_link_arrive(2, 2, None);
    s::packets_of_a_memory_link_arrive(1, 2, Some(3));
}

#[test]
fn buffers_of_a_pool_have_one_owner() {
    s::buffers_of_a_pool_have_one_owner(Some(4));
}

#[test]
fn a_record_is_of_one_moment() {
    s::a_record_is_of_one_moment_and_not_of_one_before(2, Some(3));
}

#[test]
fn a_record_is_of_the_turn_that_was_seen() {
    s::a_record_is_of_the_turn_that_was_seen();
}
