//! What the XDP program costs for each kind of packet: the least mean of many runs in the kernel (`BPF_PROG_TEST_RUN`), the
//! kernel's harness included. No socket takes what is steered, so the last step, the tag, is left out.
//! `cargo bench -p punctual-link --bench classifier`; needs root.

// Each program uses its part.
#[allow(dead_code)]
#[path = "../tests/classifier/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../tests/classifier/segments.rs"]
mod segments;
#[allow(dead_code)]
#[path = "../tests/classifier/support.rs"]
mod support;

use frames::{Data, PATH, Udp, ipv4};
use punctual_link::xdp::{ClassifierOptions, Program};
use punctual_link::{FlowFilter, FlowKey, Inlet, PathKey, Stream};
use segments::{Tcp, error, flows};

fn main() {
    if !support::privileged() {
        return;
    }
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (rounds, runs) = if is_bench { (60, 20_000) } else { (1, 10) };
    let ends = ipv4();
    let options = ClassifierOptions { flows_max: 16_384, listeners_max: 8, ..support::options(ends) };
    let mut program = Program::load(&options).expect("to load");
    program.set_filter(&support::filter()).expect("room");

    let [flow, flow6] = flows();
    let foreign = FlowKey { local: flow.remote, remote: flow.local };
    let ours = [
        ("channel", Data::guaranteed(100).frame(ends)),
        ("best effort", Data::best_effort(100).frame(ends)),
        ("signalling", Udp::signalling(ends, vec![1; 60]).frame()),
        ("unknown path", Data { path: PathKey { channel: 99, ..PATH }, ..Data::guaranteed(1) }.frame(ends)),
    ];
    let theirs = [("TCP of the kernel", Tcp::of(foreign).frame())];
    let of_flows = [
        ("flow over IPv4", Tcp::of(flow).frame()),
        ("flow over IPv6", Tcp::of(flow6).frame()),
        ("ICMP error", error(flow, 3, 0)),
    ];
    let measure = |program: &Program, when: &str, cases: &[(&str, Vec<u8>)]| {
        for (name, frame) in cases {
            let times = (0..rounds).map(|_| program.run(&mut frame.clone(), runs).expect("to run").1);
            println!("{when}, {name}: {} ns", times.min().expect("a round").as_nanos());
        }
    };
    measure(&program, "no flows", &ours);
    measure(&program, "no flows", &theirs);
    let inlet =
        Inlet { stream: Stream::Guaranteed, burst_packets: 1 << 30, interval_ns: 1, buffers: 1_000_000 };
    for index in 0..options.flows_max {
        let key = match index {
            0 => flow,
            1 => flow6,
            _ => FlowKey { remote: ([203, 0, (index >> 8) as u8, index as u8], 80).into(), ..flow },
        };
        program.set_flow(&FlowFilter { key, index, inlet }).expect("room");
    }
    let when = "16,384 flows";
    measure(&program, when, &ours);
    measure(&program, when, &theirs);
    measure(&program, when, &of_flows);
}
