//! Attaching, on devices of a network namespace that each test makes for a thread of its own and that ends
//! with the thread.

use std::process::Command;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use punctual_link::kernel::{Device, XdpAttachment};
use punctual_link::xdp::{AttachMode, Classifier, ClassifierOptions};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, set_capabilities, unshare_unsafe};

use crate::frames::{ipv4, ipv6};
use crate::support::{options, privileged};

/// Runs `work` on a thread in a namespace with the devices `va` and `vb`, ends of one cable.
fn in_namespace<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: only the network namespace of this thread changes; no file or memory does.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("to unshare");
            ip("link set lo up");
            ip("link add va type veth peer name vb");
            ip("link set va up");
            ip("link set vb up");
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn on(device: &str, mode: AttachMode) -> ClassifierOptions {
    ClassifierOptions { device: device.into(), mode, ..options(ipv4()) }
}

fn attached(device: &str) -> Option<XdpAttachment> {
    Device::named(device).expect("the device").xdp
}

/// Unloading is immediate, except that another test's child may hold a copy of our descriptors until it calls
/// exec.
fn wait_until_unloaded(id: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while loaded_programs().flatten().any(|program| program.id() == id) {
        assert!(Instant::now() < deadline, "program {id} is still loaded");
        std::thread::yield_now();
    }
}

fn refused(options: &ClassifierOptions) -> String {
    Classifier::attach(options).expect_err("to be refused").to_string()
}

#[test]
fn attaches_as_configured_and_detaches_on_drop() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        for (device, mode, native) in [
            ("va", AttachMode::Auto, true),
            ("va", AttachMode::Native, true),
            ("va", AttachMode::Generic, false),
            ("lo", AttachMode::Auto, false),
        ] {
            let classifier = Classifier::attach(&on(device, mode)).expect("to attach");
            let found = attached(device).expect("a program");
            assert_eq!(found.native, native, "{device} {mode}");
            let expected = if native { AttachMode::Native } else { AttachMode::Generic };
            assert_eq!(classifier.mode(), expected);
            drop(classifier);
            assert_eq!(attached(device), None);
            wait_until_unloaded(found.program);
        }
    });
}

/// Without fragments a driver accepts a program only if a packet fits a page.
#[test]
fn jumbo_frames_are_no_reason_for_generic_mode() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        ip("link set va mtu 9000");
        ip("link set vb mtu 9000");
        let classifier = Classifier::attach(&on("va", AttachMode::Native)).expect("to attach");
        assert_eq!(classifier.mode(), AttachMode::Native);
    });
}

#[test]
fn two_devices_have_a_program_each() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        let left = Classifier::attach(&on("va", AttachMode::Auto)).expect("to attach");
        let _right = Classifier::attach(&ClassifierOptions { device: "vb".into(), ..options(ipv6()) });
        let ids = ["va", "vb"].map(|device| attached(device).expect("a program").program);
        assert_ne!(ids[0], ids[1]);
        drop(left);
        assert_eq!(attached("va"), None);
        assert!(attached("vb").is_some());
    });
}

#[test]
fn another_program_is_named_and_left_alone() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        let _first = Classifier::attach(&on("va", AttachMode::Native)).expect("to attach");
        let found = attached("va").expect("a program");
        for mode in [AttachMode::Auto, AttachMode::Native, AttachMode::Generic] {
            let text = refused(&on("va", mode));
            assert!(text.contains(&format!("id {}", found.program)), "{text}");
            assert!(text.contains("xdpdrv off"), "the fix: {text}");
            assert_eq!(attached("va"), Some(found));
        }
    });
}

/// A program that was attached by netlink, as by `ip link set xdp`: it has no owner process that could end.
#[test]
fn a_program_without_an_owner_is_named_too() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        ip(concat!("link set dev va xdpgeneric obj ", env!("OUT_DIR"), "/punctual.bpf.o sec xdp.frags"));
        let text = refused(&on("va", AttachMode::Auto));
        let found = attached("va").expect("a program");
        assert!(text.contains(&format!("id {}, generic", found.program)), "{text}");
        assert!(text.contains("ip link set dev va xdpgeneric off"), "{text}");
        ip("link set dev va xdpgeneric off");
        Classifier::attach(&on("va", AttachMode::Auto)).expect("the fix that the text names works");
    });
}

#[test]
fn a_missing_feature_of_a_device_is_named_with_the_fix() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        let text = refused(&on("lo", AttachMode::Native));
        assert!(text.contains("xdp_mode = \"generic\""), "{text}");
        assert_eq!(attached("lo"), None);
        let text = refused(&on("nothing0", AttachMode::Auto));
        assert!(text.contains("nothing0") && text.contains("ip link"), "{text}");
        refused(&on("", AttachMode::Auto));
        refused(&on("a name that is far too long for a device", AttachMode::Auto));
    });
}

#[test]
fn missing_rights_are_named() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        let without = |gone: CapabilitySet| {
            let all = capabilities(None).expect("to read");
            let mut fewer = all;
            fewer.effective.remove(gone);
            set_capabilities(None, fewer).expect("to give up");
            let text = refused(&on("va", AttachMode::Auto));
            set_capabilities(None, all).expect("to take back");
            text
        };
        let text = without(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
        assert!(text.contains("CAP_BPF") && !text.contains("CAP_NET_ADMIN"), "{text}");
        let text = without(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
        assert!(text.contains("CAP_NET_ADMIN, CAP_NET_RAW") && !text.contains("CAP_BPF"), "{text}");
        // The three that are named are enough.
        let all = capabilities(None).expect("to read");
        let named = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        let mut fewer = all;
        fewer.effective = named;
        set_capabilities(None, fewer).expect("to give up");
        let classifier = Classifier::attach(&on("va", AttachMode::Auto));
        set_capabilities(None, all).expect("to take back");
        drop(classifier.expect("CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW are enough"));
    });
}

#[test]
fn a_device_that_vanishes_takes_nothing_with_it() {
    if !privileged() {
        return;
    }
    in_namespace(|| {
        let mut classifier = Classifier::attach(&on("va", AttachMode::Auto)).expect("to attach");
        ip("link del va");
        classifier.set_filter(&crate::support::filter()).expect("maps live on");
        classifier.clear_filter(crate::frames::PATH).expect("maps live on");
        assert_eq!(classifier.drops(), punctual_link::StreamDrops::default());
        drop(classifier);
        ip("link add va type veth peer name vb");
        let _again = Classifier::attach(&on("va", AttachMode::Auto)).expect("to attach again");
    });
}
