//! The rules of RFC 6582 and RFC 6675, by hand-made acknowledgements.

use alloc::vec;

use super::*;

const START: u32 = u32::MAX - 1_499;

/// Four segments of 1,000 bytes in flight.
fn flight() -> Recovery {
    let mut recovery = Recovery::new(START, 8_000);
    for segment in 0..4 {
        assert!(!send(&mut recovery, segment * 1_000, segment * 1_000), "sent for the first time");
    }
    recovery
}

/// The machine sends the 1,000 bytes at `at`; `sent` were sent so far.
fn send(recovery: &mut Recovery, at: u32, sent: u32) -> bool {
    let payload = [(at / 1_000) as u8; 1_000];
    if START.wrapping_add(at) == recovery.start.wrapping_add(recovery.bytes.len() as u32) {
        recovery.enqueue(&payload);
    }
    recovery.left(START.wrapping_add(at), &payload, START.wrapping_add(sent))
}

/// An acknowledgement without data, blocks and timestamps, with the window of all others.
fn bare(ack: u32) -> Acknowledgement {
    Acknowledgement { ack, window: 500, is_bare: true, has_sack: false, has_room: true, echo: None }
}

fn acknowledge(recovery: &mut Recovery, at: u32) -> bool {
    let ack = START.wrapping_add(at);
    recovery.acknowledged(bare(ack), &[]) > 0
}

fn taken(recovery: &mut Recovery) -> Option<(u32, Vec<u8>)> {
    let mut payload = vec![9];
    assert_eq!(recovery.is_due(), recovery.resend.is_some());
    let seq = recovery.take(1_000, &mut payload)?;
    assert!(!recovery.is_due());
    Some((seq.wrapping_sub(START), payload))
}

/// The machine in fast recovery from a loss of the first segment.
fn recovering() -> Recovery {
    let mut recovery = flight();
    for _ in 0..4 {
        assert!(acknowledge(&mut recovery, 0));
    }
    assert!(!send(&mut recovery, 0, 4_000), "no timeout");
    recovery
}

/// RFC 6582 3.2 (5): each partial acknowledgement sends the next segment again, the full one ends it.
#[test]
fn a_partial_acknowledgement_sends_the_next_segment_again() {
    let mut recovery = recovering();
    assert_eq!(taken(&mut recovery), None);
    assert!(acknowledge(&mut recovery, 1_000));
    assert_eq!(taken(&mut recovery), Some((1_000, vec![1; 1_000])));
    assert!(!acknowledge(&mut recovery, 1_000), "the machine would begin anew");
    assert!(acknowledge(&mut recovery, 3_000));
    assert_eq!(taken(&mut recovery), Some((3_000, vec![3; 1_000])));
    assert!(acknowledge(&mut recovery, 4_000));
    assert_eq!(taken(&mut recovery), None);
    send(&mut recovery, 4_000, 4_000);
    assert!(acknowledge(&mut recovery, 4_000), "a new loss is the machine's");
}

/// Only data that was in flight when the recovery began counts as lost.
#[test]
fn later_data_is_not_sent_again() {
    let mut recovery = recovering();
    send(&mut recovery, 4_000, 4_000);
    assert!(acknowledge(&mut recovery, 3_500));
    assert_eq!(taken(&mut recovery), Some((3_500, vec![3; 500])));
    assert!(acknowledge(&mut recovery, 4_000));
    assert_eq!(taken(&mut recovery), None);
}

/// RFC 6582 4: after a timeout the machine sends everything again; nothing is added, until all of it has arrived.
#[test]
fn after_a_timeout_the_machine_is_alone() {
    for mut recovery in [flight(), recovering()] {
        assert!(send(&mut recovery, 0, 4_000));
        for _ in 0..5 {
            acknowledge(&mut recovery, 0);
        }
        send(&mut recovery, 0, 4_000);
        assert!(acknowledge(&mut recovery, 2_000));
        assert_eq!(taken(&mut recovery), None);
        assert!(acknowledge(&mut recovery, 2_000), "duplicates are the machine's");
        send(&mut recovery, 4_000, 4_000);
        assert!(acknowledge(&mut recovery, 4_000));
        for _ in 0..3 {
            acknowledge(&mut recovery, 4_000);
        }
        send(&mut recovery, 4_000, 5_000);
        assert_eq!(recovery.until, Some(START.wrapping_add(5_000)), "all has arrived: the next loss counts");
    }
}

/// A path is smaller than believed if timeouts repeat; what duplicates bring back is random loss.
#[test]
fn a_timeout_is_distinguished_from_a_fast_retransmission() {
    let mut recovery = flight();
    acknowledge(&mut recovery, 0);
    assert!(send(&mut recovery, 0, 4_000), "no duplicates: a timeout");
    for _ in 0..3 {
        acknowledge(&mut recovery, 0);
    }
    assert!(!send(&mut recovery, 0, 4_000), "the third duplicate");
    assert!(send(&mut recovery, 0, 4_000), "duplicates bring it back once");
    assert!(send(&mut recovery, 0, 4_000));
}

/// RFC 1191 6.5: what was too large is sent again at once, in segments of the new size.
#[test]
fn a_smaller_path_sends_again_what_is_in_flight() {
    let mut recovery = flight();
    recovery.path_shrank(START.wrapping_add(4_000));
    let mut payload = Vec::new();
    for at in [0, 600, 1_200, 3_900] {
        acknowledge(&mut recovery, at);
        assert_eq!(recovery.take(600, &mut payload), Some(START.wrapping_add(at)));
        assert_eq!(payload.len(), if at == 3_900 { 100 } else { 600 });
        assert!(!acknowledge(&mut recovery, at), "what it lost shows no congestion");
    }
    acknowledge(&mut recovery, 4_000);
    assert_eq!(recovery.take(600, &mut payload), None);
}

/// RFC 5681 2: a duplicate acknowledgement has no data, the same window, and data is in flight.
#[test]
fn only_duplicate_acknowledgements_begin_a_recovery() {
    for (window, is_bare, is_begun) in [(500, true, true), (501, true, false), (500, false, false)] {
        let mut recovery = flight();
        acknowledge(&mut recovery, 0);
        for _ in 0..3 {
            recovery.acknowledged(Acknowledgement { is_bare, ..bare(START) }, &[]);
        }
        recovery.acknowledged(Acknowledgement { window, is_bare, ..bare(START) }, &[]);
        send(&mut recovery, 0, 4_000);
        assert_eq!(recovery.until.is_some(), is_begun, "{window} {is_bare}");
    }
}

/// What the copy holds is what was written and not acknowledged, however it is cut into segments.
#[test]
fn the_copy_holds_each_byte_once() {
    let mut recovery = Recovery::new(START, 8_000);
    recovery.enqueue(&[1, 2, 3, 4, 5]);
    recovery.left(START, &[1, 2, 3], START);
    recovery.left(START.wrapping_add(1), &[2, 3, 4], START.wrapping_add(3));
    assert_eq!(recovery.in_flight(), 4);
    let mut copied = vec![9];
    recovery.copy(START.wrapping_add(3), 9, &mut copied);
    assert_eq!(copied, [4, 5]);
    recovery.left(START.wrapping_add(2), &[3, 4, 5], START.wrapping_add(4));
    assert_eq!(recovery.bytes, [1, 2, 3, 4, 5]);
    recovery.advance(START.wrapping_add(2), false);
    assert_eq!(recovery.bytes, [3, 4, 5]);
    recovery.advance(START.wrapping_add(6), false);
    assert_eq!(recovery.in_flight(), 0);
    assert!(recovery.bytes.is_empty(), "a FIN was acknowledged with the last byte");
}

fn acknowledge_blocks(recovery: &mut Recovery, at: u32, blocks: &[(u32, u32)]) -> bool {
    let number = |at: u32| START.wrapping_add(at);
    let blocks: Vec<_> = blocks.iter().map(|(from, to)| (number(*from), number(*to))).collect();
    recovery.acknowledged(Acknowledgement { has_sack: true, ..bare(number(at)) }, &blocks) > 0
}

/// RFC 6675: of eight segments the first, the third and the fourth are lost. Each duplicate with news sends a hole again, and
/// is kept from the machine; a hole with too little behind it waits.
#[test]
fn each_duplicate_with_news_fills_a_hole() {
    let mut recovery = Recovery::new(START, 16_000);
    (0..8).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
    // The first acknowledgement shows the window.
    acknowledge(&mut recovery, 0);
    for blocks in
        [&[(1_000, 2_000)][..], &[(4_000, 5_000), (1_000, 2_000)], &[(4_000, 6_000), (1_000, 2_000)]]
    {
        assert!(!recovery.shows_loss());
        assert!(!acknowledge_blocks(&mut recovery, 0, blocks), "the machine would count three");
        assert_eq!(taken(&mut recovery), None, "it has not begun to recover");
    }
    assert!(recovery.shows_loss(), "three segments are behind the first");
    recovery.told_of_loss();
    assert!(!recovery.shows_loss(), "once");
    assert!(!send(&mut recovery, 0, 8_000), "the machine's fast retransmission");
    assert!(acknowledge_blocks(&mut recovery, 0, &[(4_000, 6_000)]), "no news");
    assert_eq!(taken(&mut recovery), None);
    assert!(
        !acknowledge_blocks(&mut recovery, 0, &[(4_000, 7_000)]),
        "more than two segments are behind the hole"
    );
    assert_eq!(taken(&mut recovery), Some((2_000, vec![2; 1_000])));
    assert!(!acknowledge_blocks(&mut recovery, 0, &[(4_000, 8_000)]));
    assert_eq!(taken(&mut recovery), Some((3_000, vec![3; 1_000])));
    // The first segment came, those of the hole are on their way: nothing is sent twice.
    assert!(acknowledge_blocks(&mut recovery, 2_000, &[(4_000, 8_000)]));
    assert_eq!(taken(&mut recovery), None);
    assert!(acknowledge_blocks(&mut recovery, 8_000, &[]));
    assert!(!recovery.is_repairing() && !recovery.has_hole());
}

/// RFC 2018 8: after a timeout the peer may have forgotten. Blocks outside of what is in flight are none.
#[test]
fn a_timeout_and_wrong_blocks_leave_no_hole() {
    let mut recovery = flight();
    acknowledge_blocks(&mut recovery, 0, &[(0, 1_000), (3_000, 5_000), (2_000, 1_000)]);
    assert!(!recovery.has_hole());
    acknowledge_blocks(&mut recovery, 0, &[(2_000, 4_000)]);
    assert!(recovery.has_hole());
    assert!(send(&mut recovery, 0, 4_000), "a timeout");
    assert!(!recovery.has_hole() && recovery.is_repairing());
}

/// RFC 6582 3.2, step 3: in a recovery the machine gets a duplicate for each segment that has arrived, not for each duplicate. Without
/// news one stays one.
#[test]
fn a_duplicate_in_a_recovery_counts_for_each_segment_that_has_arrived() {
    let mut recovery = Recovery::new(START, 100_000);
    (0..80).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
    acknowledge(&mut recovery, 0);
    let times = |recovery: &mut Recovery, to: u32| {
        let it = Acknowledgement { has_sack: true, ..bare(START) };
        recovery.acknowledged(it, &[(START.wrapping_add(1_000), START.wrapping_add(to))])
    };
    for segments in [2, 6, 10] {
        assert_eq!(times(&mut recovery, segments * 1_000), 0, "no recovery yet");
    }
    recovery.told_of_loss();
    assert!(!send(&mut recovery, 0, 80_000), "the fast retransmission");
    for (to, counts) in
        [(11_000, 1), (11_000, 1), (11_999, 1), (15_000, 3), (31_000, 16), (80_000, ACK_PARTS_MAX)]
    {
        assert_eq!(times(&mut recovery, to), counts, "{to} bytes");
    }
}

/// Small segments show a loss by their number, where their bytes would not.
#[test]
fn three_small_segments_behind_a_hole_show_that_it_is_lost() {
    let mut recovery = Recovery::new(START, 100_000);
    send(&mut recovery, 0, 0);
    acknowledge(&mut recovery, 1_000);
    recovery.enqueue(&[7; 400]);
    for at in [1_000, 1_100, 1_200, 1_300] {
        recovery.left(START.wrapping_add(at), &[7; 100], START.wrapping_add(at));
    }
    acknowledge(&mut recovery, 1_000);
    for (to, is_lost) in [(1_200, false), (1_200, false), (1_300, false), (1_400, true)] {
        assert!(!acknowledge_blocks(&mut recovery, 1_000, &[(1_100, to)]));
        assert_eq!(recovery.shows_loss(), is_lost, "{to}");
    }
}

/// RFC 3522: the peer echoes the time of the first copy, so it was late and not lost. From then on more segments must overtake one.
#[test]
fn a_path_that_reorders_needs_more_to_show_a_loss() {
    let mut recovery = Recovery::new(START, 100_000);
    (0..40).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
    acknowledge(&mut recovery, 0);
    assert!(!acknowledge_blocks(&mut recovery, 0, &[(1_000, 4_000)]));
    assert!(recovery.shows_loss());
    recovery.told_of_loss();
    assert!(!send(&mut recovery, 0, 40_000));
    recovery.began_at(500);
    let late =
        |ack: u32| Acknowledgement { has_sack: true, echo: Some(490), ..bare(START.wrapping_add(ack)) };
    assert_eq!(recovery.acknowledged(late(40_000), &[]), 1);
    (40..80).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
    assert!(!acknowledge_blocks(&mut recovery, 40_000, &[(41_000, 46_000)]));
    assert!(!recovery.shows_loss(), "five have overtaken it");
    assert!(!acknowledge_blocks(&mut recovery, 40_000, &[(41_000, 47_000)]));
    assert!(recovery.shows_loss());
}

/// Without room for the full segment that the machine would send for the third, it gets no duplicate; holes are filled all the same.
#[test]
fn the_machine_gets_no_duplicate_beside_a_small_window() {
    let small = |blocks: &[(u32, u32)], recovery: &mut Recovery| {
        let it = Acknowledgement { has_sack: true, has_room: false, ..bare(START) };
        recovery.acknowledged(it, blocks)
    };
    let mut recovery = flight();
    acknowledge(&mut recovery, 0);
    assert_eq!([0; 5].map(|_| small(&[], &mut recovery)), [0; 5]);
    assert!(send(&mut recovery, 0, 4_000), "a timeout: it has counted nothing");
    let mut recovery = Recovery::new(START, 16_000);
    (0..8).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
    acknowledge(&mut recovery, 0);
    recovery.told_of_loss();
    assert!(!send(&mut recovery, 0, 8_000), "a recovery");
    assert_eq!(small(&[(START.wrapping_add(2_000), START.wrapping_add(8_000))], &mut recovery), 0);
    assert_eq!(taken(&mut recovery), Some((1_000, vec![1; 1_000])));
}
