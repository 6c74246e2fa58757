//! Measures what a link over AF_XDP costs the kernel's own traffic: kernel TCP over a veth in a network of
//! the check's own, without a program on the receiving end, and with ours in native and in generic mode. It
//! takes a second and a half.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use punctual_link::xdp::{AttachMode, Classifier, ClassifierOptions};
use punctual_os::namespaces::{Namespace, next_number};

use crate::finding::Finding;

const CHECK: &str = "kernel TCP beside xdp";
const SEND: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 1);
const RECEIVE: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 2);
const DEVICE: &str = "cost";
/// Time until the stream runs at its pace.
const WARM_UP: Duration = Duration::from_millis(100);
const MEASURE: Duration = Duration::from_millis(400);
/// Longest wait for a stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// Percentage of the throughput in generic mode below which kernel TCP makes native mode inadvisable.
const WORTH_PERCENT: u64 = 80;

/// Kernel TCP in Mbit/s of payload.
#[derive(Clone, Copy, Debug)]
struct Cost {
    without: u64,
    native: u64,
    generic: u64,
}

/// Measures and judges; a note if it cannot be measured here. Links with TCP connections of this host have no choice of the mode.
pub(super) fn check(has_flows: bool) -> Finding {
    match measure() {
        Ok(cost) => cost.finding(has_flows),
        Err(error) => Finding::note(
            CHECK,
            format!("not measured: {error}"),
            "run punctual doctor as root, with ip and the kernel's veth, to see what it costs",
        ),
    }
}

impl Cost {
    fn finding(self, has_flows: bool) -> Finding {
        let gbps = |mbps: u64| format!("{:.1}", mbps as f64 / 1e3);
        let found = format!(
            "on a veth of this host {} Gbit/s without a program, {} in native mode, {} in generic",
            gbps(self.without),
            gbps(self.native),
            gbps(self.generic)
        );
        if self.native * 100 >= self.generic * WORTH_PERCENT {
            return Finding::ok(CHECK, format!("{found}: native mode (the default) is the one to choose"));
        }
        if has_flows {
            let fix = "nothing for links with flows_max, which need native mode; where kernel TCP matters, on veths and bridges, give it \
                       another interface";
            return Finding::note(CHECK, found, fix);
        }
        let fix = "on veths and bridges, where kernel TCP beside the link matters, set xdp_mode = \"generic\": native mode \
                   switches the sender's segmentation off; it is the one to choose where only Punctual's packets count, or on a \
                   NIC whose driver has it";
        Finding::note(CHECK, found, fix)
    }
}

fn measure() -> io::Result<Cost> {
    let failed = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let number = next_number();
    let [a, b] = ["cost-a", "cost-b"].map(|host| Namespace::create(number, host));
    let (a, b) = (a.map_err(|error| failed(&error))?, b.map_err(|error| failed(&error))?);
    let lines = format!(
        "link add {DEVICE} type veth peer name {DEVICE} netns {}\naddress add {SEND}/24 dev {DEVICE}\nlink set {DEVICE} up\n",
        b.name()
    );
    a.feed("ip -batch -", &lines).map_err(|error| failed(&error))?;
    let lines = format!("address add {RECEIVE}/24 dev {DEVICE}\nlink set {DEVICE} up\n");
    b.feed("ip -batch -", &lines).map_err(|error| failed(&error))?;
    let with = |mode: AttachMode| {
        let options = ClassifierOptions {
            mode,
            ..ClassifierOptions::new(DEVICE, RECEIVE.into(), SEND.into(), 7_411, 7_412)
        };
        let program = b.within(|| Classifier::attach(&options).map_err(io::Error::other))?;
        let rate = tcp(&a, &b);
        // Detached in its namespace's time, not in the next measurement's.
        drop(program);
        rate
    };
    Ok(Cost { without: tcp(&a, &b)?, native: with(AttachMode::Native)?, generic: with(AttachMode::Generic)? })
}

/// Rate of one TCP stream from `a` to `b`, in Mbit/s of payload.
fn tcp(a: &Namespace, b: &Namespace) -> io::Result<u64> {
    let listener = b.within(|| TcpListener::bind((RECEIVE, 0)))?;
    let to = listener.local_addr()?;
    let sender = a.within(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    sender.set_write_timeout(Some(PATIENCE))?;
    let (receiver, _) = listener.accept()?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let (over, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|scope| {
        scope.spawn(|| {
            let block = vec![0; 1 << 18];
            // The end of the stream is the end of the measurement, or of the receiver.
            let mut taken = Ok(());
            while !over.load(Ordering::Relaxed) && taken.is_ok() {
                taken = (&sender).write_all(&block);
            }
            let _ = sender.shutdown(std::net::Shutdown::Write);
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 18];
            while let Ok(bytes @ 1..) = (&receiver).read(&mut buffer) {
                arrived.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        sleep(WARM_UP);
        let (before, begun) = (arrived.load(Ordering::Relaxed), Instant::now());
        sleep(MEASURE);
        let bytes = arrived.load(Ordering::Relaxed) - before;
        let mbps = u128::from(bytes) * 8_000 / begun.elapsed().as_nanos().max(1);
        over.store(true, Ordering::Relaxed);
        u64::try_from(mbps).map_err(io::Error::other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn the_mode_to_choose_is_named() {
        let cost = |native| Cost { without: 10_000, native, generic: 7_500 }.finding(false);
        let poor = cost(2_900);
        assert_eq!(poor.state, State::Note);
        assert!(poor.found.contains("10.0 Gbit/s") && poor.found.contains("2.9 in native"), "{poor:?}");
        assert!(poor.fix.contains("xdp_mode = \"generic\""), "{poor:?}");
        assert_eq!(cost(7_000).state, State::Ok);
        let bound = Cost { without: 10_000, native: 2_900, generic: 7_500 }.finding(true);
        assert!(bound.state == State::Note && !bound.fix.contains("\"generic\""), "{bound:?}");
    }

    #[test]
    fn it_is_measured_where_that_can_be() {
        let finding = check(false);
        if finding.found.starts_with("not measured") {
            punctual_skip::skipped!("{}", finding.found);
            return;
        }
        assert!(finding.found.contains("Gbit/s without"), "{finding:?}");
        println!("{}", finding.found);
    }
}
