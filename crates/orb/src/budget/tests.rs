//! Who gives way when memory is used up, and what is counted.

use std::io;
use std::os::unix::net::UnixStream;

use punctual_giop::reassembly::Joined;

use super::*;
use crate::duty::never_wait_for_adapters;

fn budget() -> Arc<Budget> {
    Budget::of(&Options { held_bytes_max: 100, message_bytes_max: 50, ..Options::default() })
}

fn client(budget: &Arc<Budget>) -> (Account, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("a socket");
    (Account::new(budget, &Arc::new(Stream::new(ours.into()))), theirs)
}

fn is_ended(client: &UnixStream) -> bool {
    io::Read::read(&mut &*client, &mut [0]).is_ok_and(|read| read == 0)
}

#[test]
fn the_slowest_unfinished_message_gives_way_and_whole_ones_do_not() {
    // As the thread of a reactor does.
    never_wait_for_adapters();
    let budget = budget();
    let [mut whole, mut slow, mut quick, mut last] = [(); 4].map(|()| client(&budget));
    whole.0.set(40).expect("there is room");
    whole.0.set_unfinished(false);
    for client in [&mut slow, &mut quick] {
        client.0.set(30).expect("there is room");
    }
    slow.0.share.as_ref().expect("it has one").1.moved.store(0, Ordering::Relaxed);
    last.0.set(20).expect("the slow one gives way");
    assert_eq!(
        [&whole, &slow, &quick, &last].map(|(_, client)| is_ended(client)),
        [false, true, false, false]
    );
    assert_eq!(budget.used.load(Ordering::Relaxed), 90);
    drop(slow);
    assert_eq!(budget.used.load(Ordering::Relaxed), 90);
    quick.0.set_unfinished(false);
    assert!(last.0.set(31).is_err());
    let taken = whole.0.take(Joined::default(), 40);
    drop((whole, quick, last));
    assert_eq!(budget.used.load(Ordering::Relaxed), 40);
    drop(taken);
    assert_eq!((budget.used.load(Ordering::Relaxed), budget.shares().len()), (0, 0));
}

#[test]
fn a_thread_waits_until_the_memory_is_free() {
    let budget = budget();
    let (mut first, end) = client(&budget);
    first.set(80).expect("there is room");
    let ends = thread::spawn(move || {
        while !is_ended(&end) {
            thread::sleep(ENDED_WAIT);
        }
        drop(first);
    });
    let mut second = client(&budget).0;
    second.set(30).expect("the first gives way");
    assert_eq!(budget.used.load(Ordering::Relaxed), 30);
    ends.join().expect("no panic");
}

#[test]
fn the_longest_message_always_has_room() {
    let budget = Budget::of(&Options { held_bytes_max: 0, ..Options::default() });
    let mut client = client(&budget).0;
    client.set(2 * Options::default().message_bytes_max).expect("there is room");
}

/// A reactor frees what it has ended only when it comes to it: that is limited, too.
#[test]
fn little_is_used_twice() {
    never_wait_for_adapters();
    let budget = budget();
    let [mut first, mut second, mut third, mut last] = [(); 4].map(|()| client(&budget));
    for client in [&mut first, &mut second, &mut third] {
        client.0.set(33).expect("there is room");
    }
    assert!(!budget.take_has_ended());
    last.0.set(90).expect("three give way: 99 bytes, of at most 100");
    assert!([&first, &second, &third].iter().all(|(account, _)| account.is_ended()));
    assert!(budget.take_has_ended() && !budget.take_has_ended());
    let mut more = client(&budget).0;
    more.set(1).expect("there is room");
    assert!(more.set(11).is_err(), "the last one would be freed later, too");
    let taken = first.0.take(Joined::default(), 33);
    drop((first, second));
    assert!(more.set(11).is_err(), "its message is still there");
    drop((taken, third));
    assert_eq!(budget.ending.load(Ordering::Relaxed), 0);
    more.set(11).expect("the last one gives way");
    assert!(last.0.is_ended());
}
