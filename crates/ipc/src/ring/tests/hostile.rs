//! Rings against a hostile other side, which writes anything anywhere into the shared pages.

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;

#[test]
fn what_breaks_the_rules_breaks_its_ring_and_rings_the_alarm() {
    let hostile_positions = [5, u64::MAX, u64::MAX / 2, 1 << 32];
    for position in hostile_positions {
        let (mut reader, _writer, hostile, alarm) = outgoing(4, 64);
        Own(&hostile).position().store(position, Ordering::Relaxed);
        assert!(reader.take(now()).is_none() && !reader.is_ready() && reader.is_broken(), "{position}");
        assert!(reader.health().is_broken() && is_readable(&alarm));
        let (mut inbox, _reader, hostile, alarm) = incoming(4, 64);
        Own(&hostile).position().store(position, Ordering::Relaxed);
        assert!(inbox.reserve().is_none() && inbox.is_broken(), "{position}");
        assert!(inbox.health().is_broken() && is_readable(&alarm));
    }
    let (mut reader, mut writer, hostile, _) = outgoing(4, 64);
    writer.push(&[IoSlice::new(b"ok")]).expect("room");
    hostile.half(HEADER_BYTES).store(65, Ordering::Relaxed);
    assert!(reader.take(now()).is_none() && reader.is_broken(), "a length beyond the slot");
    let (mut inbox, mut reader, hostile, _) = incoming(4, 64);
    deliver(&mut inbox, 0, b"a");
    reader.take(|_, _| ()).expect("a message");
    drop(inbox.reserve().expect("a slot"));
    Own(&hostile).position().store(0, Ordering::Relaxed);
    assert!(inbox.reserve().is_none() && inbox.is_broken(), "a position that goes backwards");
}

#[test]
fn a_file_of_an_application_is_read_only_after_it_is_sealed() {
    let shape = RingShape::new(4, 64).expect("a shape");
    let (mut reader, handles, _doorbell) = outbox(shape, &alarm(), &RingPath::Direct).expect("a ring");
    let hostile = Region::map(&handles.descriptors[1], shape.file_bytes()).expect("mapped");
    Own(&hostile).position().store(u64::MAX, Ordering::Relaxed);
    assert!(reader.take(now()).is_none() && !reader.is_ready() && !reader.is_broken());
    assert!(reader.health().accept().is_err(), "nothing is sealed");
    assert!(reader.take(now()).is_none() && !reader.is_broken());
    Own(&hostile).position().store(0, Ordering::Relaxed);
    let mut writer = OutboxWriter::attach(handles).expect("attached");
    writer.push(&[IoSlice::new(b"early")]).expect("room");
    assert!(reader.take(now()).is_none());
    let health = reader.health();
    assert!(health.accept().is_ok() && health.accept().is_ok(), "once or twice");
    assert_eq!(bytes_of(&reader.take(now()).expect("a message").0), b"early");

    let (mut writer, handles) = inbox(shape, &alarm(), &RingPath::Direct).expect("a ring");
    let hostile = Region::map(&handles.descriptors[1], HEADER_BYTES as u64).expect("mapped");
    Own(&hostile).position().store(u64::MAX, Ordering::Relaxed);
    assert!(deliver(&mut writer, 0, b"early") && !writer.is_broken());
    Own(&hostile).position().store(0, Ordering::Relaxed);
    let mut reader = InboxReader::attach(handles).expect("attached");
    assert_eq!(reader.take(|bytes, _| bytes.to_vec()), Some(b"early".to_vec()));
    assert!((0..3).all(|_| deliver(&mut writer, 0, b"x")) && writer.reserve().is_none(), "none was taken");
    writer.health().accept().expect("sealed");
    assert!(writer.reserve().is_some());
}

#[test]
fn a_claimed_sending_time_is_kept_plausible() {
    let (mut reader, mut writer, hostile, _) = outgoing(4, 64);
    assert!(reader.take(now()).is_none());
    let empty_at = now();
    for claim in [0, u64::MAX] {
        let slot = writer.push(&[IoSlice::new(b"x")]).expect("room") as usize;
        let offset = HEADER_BYTES + slot * (64 + 64);
        hostile.word(offset + 8).store(claim, Ordering::Relaxed);
        let (_, sent_at) = reader.take(now()).expect("a message");
        assert!(sent_at <= now() && sent_at.0 + 1_000_000_000 > empty_at.0, "{claim} became {sent_at:?}");
    }
}

#[test]
fn a_length_that_changes_later_changes_nothing() {
    let (mut reader, mut writer, hostile, _) = outgoing(2, 64);
    writer.push(&[IoSlice::new(&[5; 64])]).expect("room");
    let (message, _) = reader.take(now()).expect("a message");
    hostile.half(HEADER_BYTES).store(u32::MAX, Ordering::Relaxed);
    assert_eq!((message.len(), bytes_of(&message)), (64, vec![5; 64]));
}

/// What an application may do, right or wrong.
#[derive(Clone, Debug)]
enum Step {
    Push(u8),
    Take,
    Free(usize),
    Corrupt { offset: usize, value: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u8>().prop_map(Step::Push),
        3 => Just(Step::Take),
        2 => (0..4_usize).prop_map(Step::Free),
        1 => (0..1_024_usize, prop_oneof![any::<u64>(), 0..16_u64])
            .prop_map(|(offset, value)| Step::Corrupt { offset: offset / 8 * 8, value }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is written anywhere into the shared pages: the daemon's ends neither panic nor hand out more
    /// than the ring holds, and a ring beside it works on.
    #[test]
    fn corruption_harms_only_its_own_ring(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut reader, mut writer, hostile_out, _) = outgoing(4, 64);
        let (mut inbox, mut own, hostile_in, _) = incoming(4, 64);
        let (mut beside, mut beside_writer, _, _) = outgoing(4, 64);
        let (mut held, mut slots) = (Vec::new(), Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(byte) => {
                    let _ = writer.push(&[IoSlice::new(&[byte; 33])]);
                    slots.extend(inbox.reserve());
                }
                Step::Take => {
                    held.extend(reader.take(now()));
                    if let Some(slot) = slots.pop() {
                        inbox.publish(slot, MessageInfo { len: 64, ..MessageInfo::default() });
                    }
                    own.take(|bytes, _| assert!(bytes.len() <= 64));
                }
                Step::Free(index) => {
                    if index < held.len() {
                        held.swap_remove(index);
                    }
                }
                Step::Corrupt { offset, value } => {
                    for region in [&hostile_out, &hostile_in] {
                        region.word(offset.min(region.len() - 8)).store(value, Ordering::Relaxed);
                    }
                }
            }
            prop_assert!(held.len() <= 4 && slots.len() <= 4);
            for (message, sent_at) in &held {
                prop_assert!(bytes_of(message).len() <= 64 && *sent_at <= now());
            }
            beside_writer.push(&[IoSlice::new(&number.to_ne_bytes())]).expect("room");
            let (message, _) = beside.take(now()).expect("a message");
            prop_assert_eq!(bytes_of(&message), number.to_ne_bytes().to_vec());
        }
    }
}
