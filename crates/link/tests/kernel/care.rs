//! What is set up on a device is put back, also after a crash.

use punctual_link::kernel::napi::{ThreadClass, instances};
use punctual_link::kernel::{CareOptions, Device, DeviceCare, KernelError, ShaperRate, leftovers};

use crate::namespaces::{Pair, privileged};

const RATE: ShaperRate = ShaperRate { rate_bps: 20_000_000, burst_bytes: 6_000 };

fn everything() -> CareOptions {
    CareOptions { kernel_rate: Some(RATE), napi_priority: Some(60), interrupt_defer_ns: 30_000 }
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
        "handle 8001: bfifo limit 50000",
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
