//! Settings of a device are restored, also after a crash.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_link::kernel::napi::{ThreadClass, instances};
use punctual_link::kernel::{
    CareOptions, Device, DeviceCare, FIRST_CLASS, KernelError, ShaperRate, TrafficSample, leftovers,
};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::namespaces::{ADDRESSES, Pair, hang_with, privileged};

const RATE: ShaperRate = ShaperRate { rate_bps: 20_000_000, burst_bytes: 6_000 };

fn everything() -> CareOptions {
    CareOptions {
        kernel_rate: Some(RATE),
        napi_priority: Some(60),
        interrupt_defer_ns: 30_000,
        ..CareOptions::default()
    }
}

/// A pair whose left end has NAPI instances without an XDP program.
fn pair_with_napi() -> Pair {
    let pair = Pair::new();
    pair.left("ethtool -K va gro on");
    pair
}

fn take(pair: &Pair, options: CareOptions) -> Result<DeviceCare, KernelError> {
    pair.within(|| DeviceCare::take(&Device::named("va")?, 0, options))
}

#[test]
fn everything_is_set_up_shown_and_put_back() {
    if !privileged() {
        return;
    }
    let pair = pair_with_napi();
    let before = pair.photograph();
    let mut care = take(&pair, everything()).expect("care");
    let during = pair.photograph();
    assert!(during.contains("qdisc tbf 7075: root") && during.contains("rate 20Mbit"), "{during}");
    let status = pair.within(|| care.status()).expect("a status");
    assert!(status.shaped);
    assert!(!status.threads.is_empty());
    assert!(status.threads.iter().all(|(_, class)| *class == ThreadClass::fifo(60)), "{status:?}");
    let napis = pair.within(|| instances(care.device(), 0)).expect("instances");
    for napi in napis {
        let settings = napi.settings;
        assert_eq!(
            (settings.threaded, settings.defer_hard_irqs, settings.gro_flush_timeout_ns),
            (1, 2, 30_000)
        );
    }
    let busy = take(&pair, everything()).expect_err("taken").to_string();
    assert!(busy.contains(&format!("process {}", std::process::id())), "{busy}");
    pair.within(|| care.restore()).expect("to put back");
    assert_eq!(pair.photograph(), before);
    assert!(pair.within(leftovers).expect("records").is_empty());
    // Again, by dropping.
    pair.within(|| drop(DeviceCare::take(&Device::named("va").expect("va"), 1, everything()).expect("care")));
    assert_eq!(pair.photograph(), before);
}

#[test]
fn a_classless_qdisc_comes_back_as_it_was_and_others_are_refused() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let shaped = CareOptions { kernel_rate: Some(RATE), ..CareOptions::default() };
    let qdiscs = [
        "pfifo limit 77",
        "handle 77: bfifo limit 50000",
        "handle 9: tbf rate 5mbit burst 9000 limit 30000 overhead 24",
    ];
    for qdisc in qdiscs {
        pair.left(&format!("tc qdisc replace dev va root {qdisc}"));
        let before = pair.photograph();
        let care = take(&pair, shaped).expect(qdisc);
        assert!(pair.photograph().contains("qdisc tbf 7075: root"));
        pair.within(|| drop(care));
        assert_eq!(pair.photograph(), before, "{qdisc}");
    }
    for foreign in ["root handle 5: htb", "clsact"] {
        pair.left("tc qdisc del dev va root");
        pair.left(&format!("tc qdisc add dev va {foreign}"));
        let before = pair.photograph();
        match take(&pair, shaped) {
            Ok(care) => pair.within(|| drop(care)),
            Err(error) => {
                let error = error.to_string();
                assert!(foreign.contains("htb") && error.contains("tc qdisc del dev va root"), "{error}");
            }
        }
        assert_eq!(pair.photograph(), before, "{foreign}");
        if foreign.contains("clsact") {
            break;
        }
        pair.left("tc qdisc replace dev va root pfifo");
    }
}

#[test]
fn child_that_hangs_with_everything_set_up() {
    hang_with(|| DeviceCare::take(&Device::named("va").expect("va"), 0, everything()).expect("care"));
}

/// A process in the left namespace that has set everything up.
fn hanging(pair: &Pair) -> Child {
    pair.hanging("care::child_that_hangs_with_everything_set_up")
}

#[test]
fn what_a_killed_process_leaves_is_found_and_put_back() {
    if !privileged() {
        return;
    }
    for qdisc in [None, Some("pfifo limit 55")] {
        let pair = pair_with_napi();
        if let Some(qdisc) = qdisc {
            pair.left(&format!("tc qdisc replace dev va root {qdisc}"));
        }
        let before = pair.photograph();
        let mut child = hanging(&pair);
        assert!(pair.within(leftovers).expect("records").is_empty(), "its owner lives");
        child.kill().expect("to kill it");
        child.wait().expect("its end");
        assert_ne!(pair.photograph(), before);
        let mut left = pair.within(leftovers).expect("records");
        assert_eq!(left.len(), 1);
        let leftover = left.remove(0);
        assert_eq!((leftover.device(), leftover.owner()), ("va", child.id()));
        assert!(leftover.what().contains("7075:") && leftover.what().contains("NAPI"), "{}", leftover.what());
        pair.within(|| leftover.repair()).expect("to put back");
        assert_eq!(pair.photograph(), before);
        assert!(pair.within(leftovers).expect("records").is_empty());
        // The next host on the device restores them.
        let mut child = hanging(&pair);
        child.kill().expect("to kill it");
        child.wait().expect("its end");
        let care = take(&pair, everything()).expect("care");
        pair.within(|| drop(care));
        assert_eq!(pair.photograph(), before);
    }
}

#[test]
fn a_shaper_whose_record_is_lost_is_known_by_its_handle() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let before = pair.photograph();
    pair.left("tc qdisc replace dev va root handle 7075: tbf rate 1mbit burst 3000 limit 9000");
    let mut left = pair.within(leftovers).expect("records");
    assert_eq!(left.len(), 1);
    let leftover = left.remove(0);
    assert_eq!((leftover.device(), leftover.owner()), ("va", 0));
    pair.within(|| leftover.repair()).expect("to put back");
    assert_eq!(pair.photograph(), before);
}

#[test]
fn the_shaper_bounds_also_what_segmentation_offload_sends() {
    if !privileged() {
        return;
    }
    const SEGMENT: i32 = 1_472;
    const WIRE_BYTES: u32 = 1_538;
    let pair = Pair::new();
    let shaped = CareOptions { kernel_rate: Some(RATE), ..CareOptions::default() };
    let care = take(&pair, shaped).expect("care");
    let receiver = pair.within_right(|| UdpSocket::bind((ADDRESSES[1], 9_000))).expect("a receiver");
    receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    // All packets may wait there: no thread receives any while this thread does not run.
    set_socket_recv_buffer_size_force(&receiver, 4 << 20).expect("a buffer");
    let sender = pair.within(|| UdpSocket::bind((ADDRESSES[0], 0))).expect("a sender");
    let segment = SEGMENT;
    // SAFETY: pointer and length describe a number that is valid during the call.
    let result = unsafe {
        let value = (&raw const segment).cast();
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
    };
    assert_eq!(result, 0, "UDP_SEGMENT");
    let begun = Instant::now();
    for _ in 0..4 {
        sender.send_to(&[7; 20 * SEGMENT as usize], (ADDRESSES[1], 9_000)).expect("twenty packets");
    }
    let mut buffer = [0; 2_048];
    for packet in 0..80 {
        receiver.recv(&mut buffer).unwrap_or_else(|error| panic!("packet {packet}: {error}"));
    }
    let took = begun.elapsed();
    let beyond_burst = u64::from(80 * WIRE_BYTES - RATE.burst_bytes);
    let least = Duration::from_nanos(beyond_burst * 8_000_000_000 / RATE.rate_bps);
    assert!(took >= least, "80 packets in {took:?}, the shaper allows them in {least:?}");
    pair.within(|| drop(care));
}

#[test]
fn behind_the_shaper_ours_go_first_and_runs_are_cut() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let before = pair.photograph();
    let shaped = CareOptions { whole_rate: Some(RATE), ..CareOptions::default() };
    let care = take(&pair, shaped).expect("care");
    let during = pair.photograph();
    assert!(during.contains("tbf 7075: root") && during.contains("htb 7076: parent 7075:1"), "{during}");
    assert!(pair.within(|| care.status()).expect("a status").shaped);
    let receiver = pair.within_right(|| UdpSocket::bind((ADDRESSES[1], 9_000))).expect("a receiver");
    receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    set_socket_recv_buffer_size_force(&receiver, 4 << 20).expect("a buffer");
    let socket = || pair.within(|| UdpSocket::bind((ADDRESSES[0], 0))).expect("a sender");
    let (kernels, ours) = (socket(), socket());
    let set = |socket: &UdpSocket, level, name, value: u32| {
        // SAFETY: pointer and length describe a number that is valid during the call.
        let result =
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
        assert_eq!(result, 0);
    };
    set(&kernels, libc::SOL_UDP, libc::UDP_SEGMENT, 1_472);
    set(&ours, libc::SOL_SOCKET, libc::SO_PRIORITY, FIRST_CLASS);
    // 61 ms at that rate, then one of ours.
    for _ in 0..5 {
        kernels.send_to(&[7; 20 * 1_472], (ADDRESSES[1], 9_000)).expect("twenty packets");
    }
    ours.send_to(&[1; 100], (ADDRESSES[1], 9_000)).expect("a packet");
    let mut buffer = [0; 2_048];
    let ahead = (0..101).position(|_| receiver.recv(&mut buffer).expect("a packet") == 100);
    // The burst that the bucket let through at once, the unit that it holds, and packets that left while we
    // sent; in one queue it would be all hundred.
    assert!(ahead.is_some_and(|ahead| ahead < 50), "{ahead:?} packets of the kernel's went first");
    pair.within(|| drop(care));
    assert_eq!(pair.photograph(), before);
}

/// Bytes of the wire that the kernel has sent by `va`: packets beside the counted ones are 24 B longer there.
fn sent_wire_bytes(pair: &Pair) -> u64 {
    let sample = pair.within(|| TrafficSample::of(Device::named("va").expect("va").index)).expect("counters");
    sample.bytes + 24 * sample.packets
}

/// Sends from the left end as fast as possible while `work` runs; the other end has no receiver.
fn flooding<R: Send>(pair: &Pair, work: impl FnOnce() -> R + Send) -> R {
    /// Ends the flood, also when `work` panics: the scope waits for its thread.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            pair.within(|| {
                let socket = UdpSocket::bind((ADDRESSES[0], 0)).expect("a sender");
                // The queue may be held for good once the rate is gone.
                socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a time");
                while !over.load(Ordering::Relaxed) {
                    // A refusal of the other end, or a full queue, is no error of this.
                    let _ = socket.send_to(&[7; 1_400], (ADDRESSES[1], 9_000));
                }
            });
        });
        work()
    })
}

const FOLLOWING: CareOptions = CareOptions {
    kernel_rate: Some(ShaperRate { rate_bps: 9_000_000, burst_bytes: 6_400 }),
    link_rate_bps: Some(90_000_000),
    whole_rate: None,
    napi_priority: None,
    interrupt_defer_ns: 0,
};

#[test]
fn changes_of_a_rate_in_a_loop_let_no_more_through_than_one_burst() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let before = pair.photograph();
    let mut care = take(&pair, FOLLOWING).expect("care");
    let during = pair.photograph();
    assert!(during.contains("tbf 7075: root") && during.contains("htb 7076: parent 7075:1"), "{during}");
    let (took, sent) = flooding(&pair, || {
        // The clock first: what leaves before the count begins only makes the limit larger.
        let (begun, from) = (Instant::now(), sent_wire_bytes(&pair));
        pair.within(|| {
            // Sixteen times: a bucket that a change refills would let a unit more through with each.
            for step in 0..1_600 {
                care.follow(9_000_000 + 9_000 * (step % 2)).expect("a change");
            }
        });
        let sent = sent_wire_bytes(&pair) - from;
        (begun.elapsed(), sent)
    });
    let burst = u64::from(FOLLOWING.kernel_rate.expect("a rate").burst_bytes);
    let most = burst + u64::try_from(9_009_000 / 8 * took.as_nanos() / 1_000_000_000).expect("not long");
    println!("1,600 changes in {took:?}: {sent} B on the wire, at most {most}");
    assert!(sent <= most, "{sent} B in {took:?}, at most {most}");
    assert!(sent >= most / 2 || took < Duration::from_millis(20), "it sends: {sent} B in {took:?}");
    pair.within(|| drop(care));
    assert_eq!(pair.photograph(), before);
}

#[test]
fn a_rate_that_is_changed_is_had_and_the_larger_one_bounds_the_change() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let mut care = take(&pair, FOLLOWING).expect("care");
    let mut sent_at = |rate_bps: u64| {
        pair.within(|| care.follow(rate_bps)).expect("a change");
        // The clock first: what leaves before the count begins only makes the limit larger.
        let (begun, from) = (Instant::now(), sent_wire_bytes(&pair));
        std::thread::sleep(Duration::from_millis(300));
        let sent = sent_wire_bytes(&pair) - from;
        let most = 6_400
            + u64::try_from(u128::from(rate_bps / 8) * begun.elapsed().as_nanos() / 1_000_000_000)
                .expect("not long");
        println!("at {rate_bps} bit/s: {sent} B, at most {most}");
        assert!(sent <= most, "{sent} B, at most {most}");
        sent
    };
    let (least, most) = flooding(&pair, || (sent_at(9_000_000), sent_at(81_000_000)));
    assert!(most > 5 * least, "{least} B, then {most}");
    let again = flooding(&pair, || sent_at(9_000_000));
    assert!(again < 2 * least, "{least} B, then {again}");
    let fixed = take(&Pair::new(), CareOptions { link_rate_bps: None, ..FOLLOWING });
    let error = fixed.expect("care").follow(1_000_000).expect_err("a fixed rate").to_string();
    assert!(error.contains("kernel_rate"), "{error}");
}
