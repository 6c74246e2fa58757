//! A reader beside a turn that has begun and is not over, in every step that the writer takes.

use std::time::{Duration, Instant};

use super::*;

/// A reader that has seen an effect of a turn waits until the turn's words are there, and no longer.
#[test]
fn the_words_of_a_turn_that_has_begun_are_waited_for() {
    let (mut daemon, program) = outgoing();
    let reader = program.counters();
    for turn in 1..4 {
        assert!(daemon.touch());
        let (mut words, mut looked) = ([0; 1 + COUNTERS], 0);
        let is_whole = sequence::read(&reader.daemon, RECORD, &mut words, |attempts| {
            looked = attempts;
            if attempts == 3 {
                daemon.show(&counters(turn * 100));
            }
            attempts < 10
        });
        assert!(is_whole);
        assert_eq!((looked, words[1]), (3, turn * 100), "turn {turn}");
        let is_whole =
            sequence::read(&reader.daemon, RECORD, &mut words, |_| panic!("nothing is waited for"));
        assert!(is_whole && words[1] == turn * 100);
    }
}

/// A copy that overlaps a write is inconsistent, whichever words were written already.
#[test]
fn nothing_is_taken_from_between_the_words_of_a_turn() {
    const COUNT: usize = 4;
    let bytes = bytes_of(COUNT) as u64;
    let (file, region) = Region::create(bytes).expect("memory");
    let view = View::open(&file, bytes).expect("a view");
    let mut writer = Writer::new(0, COUNT);
    let copied = || {
        let mut words = [0; 1 + COUNT];
        sequence::read(&view, 0, &mut words, |_| false).then_some(words)
    };
    for turn in 1..4 {
        writer.touch(&region);
        let before = copied().expect("the turn before");
        assert_eq!(before[0], turn - 1);
        // The last words are written one by one; between the writes a reader checks.
        let mut between = Vec::new();
        let rest = (2..COUNT).map(|index| {
            between.push(copied());
            (index, turn * 10 + index as u64)
        });
        writer.write(&region, &[turn * 10, turn * 10 + 1], rest);
        assert_eq!(between, [None, None], "turn {turn}");
        assert_eq!(copied(), Some([turn, turn * 10, turn * 10 + 1, turn * 10 + 2, turn * 10 + 3]));
    }
}

/// A reader waits some time for a turn that does not end, so that it does not miss a slow turn. It does not
/// wait if the ring is closed, because then no turn ends any more.
#[test]
fn a_closed_ring_is_not_waited_for() {
    let (mut daemon, program) = outgoing();
    let reader = program.counters();
    daemon.touch();
    let begun = Instant::now();
    assert!(reader.read(true).is_some());
    let open = begun.elapsed();
    // All pauses last at least as long as requested.
    assert!(open >= Duration::from_millis(50), "{open:?}");
    drop(daemon);
    let fastest = (0..20).map(|_| {
        let begun = Instant::now();
        assert!(reader.read(true).is_some());
        begun.elapsed()
    });
    // In at least one of twenty attempts no other program delayed the reader for that long.
    assert!(fastest.min() < Some(Duration::from_millis(50)));
}
