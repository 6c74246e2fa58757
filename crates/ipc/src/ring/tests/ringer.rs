//! The thread that rings and buries for other users' programs, with real rings.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::wake::{Rank, RingMemory, Ringer};

/// Counts how often a thread's rank was raised or lowered.
struct RaisedRank(std::sync::Arc<AtomicUsize>);

impl Rank for RaisedRank {
    fn begin(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn raise(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn lower(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn follows(&self) -> bool {
        true
    }
}

/// A ring that is over.
struct Left(OutboxReaderHealth);
type OutboxReaderHealth = crate::ring::outgoing::OutboxHealth;

impl RingMemory for Left {
    fn is_alone(&self) -> bool {
        self.0.is_alone()
    }
    fn bytes(&self) -> u64 {
        77
    }
    fn descriptors(&self) -> u64 {
        5
    }
}

/// A thread that does not get its scheduling class.
struct Unfit;

impl Rank for Unfit {
    fn begin(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
    fn raise(&mut self) {}
    fn lower(&mut self) {}
    fn follows(&self) -> bool {
        false
    }
}

#[test]
fn a_ringer_that_cannot_begin_is_none() {
    let error = Ringer::start(Box::new(Unfit), alarm()).expect_err("said");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_ringer_rings_and_buries() {
    let (reported, freed, broken) = (std::sync::Arc::default(), alarm(), alarm());
    let rank = Box::new(RaisedRank(std::sync::Arc::clone(&reported)));
    let ringer = Ringer::start(rank, freed.clone()).expect("a thread");
    let shape = RingShape::new(4, 64).expect("a shape");
    let ring_path = RingPath::Ringer(ringer.bells());
    let (mut writer, handles) = inbox(shape, &broken, &ring_path).expect("a ring");
    let mut reader = InboxReader::attach(handles).expect("attached");
    writer.health().accept().expect("sealed");
    for number in 0..100 {
        assert!(deliver(&mut writer, number, b"rung for"));
        assert!(wait_readable(reader.as_fd(), soon()).expect("poll"), "no wake-up for {number}");
        assert_eq!(reader.take(|_, info| info.number), Some(number));
        assert!(reader.take(|_, _| ()).is_none());
    }
    let (gone, handles, _doorbell) = outbox(shape, &broken, &ring_path).expect("a ring");
    ringer.release(Box::new(Left(gone.health())));
    assert!(!wait_readable(freed.as_fd(), Some(Deadline::now() + Duration::from_millis(50))).expect("poll"));
    assert_eq!(ringer.take_freed(), (0, 0), "the engine still holds it");
    drop((gone, handles));
    assert!(wait_readable(freed.as_fd(), soon()).expect("poll"));
    assert_eq!((ringer.take_freed(), ringer.take_freed()), ((77, 5), (0, 0)));
    assert!(reported.load(Ordering::SeqCst) >= 2, "raised at its start, lowered for burying");
}
