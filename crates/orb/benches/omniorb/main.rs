//! Two-way calls of this ORB and of omniORB's C++, each at both ends, in turns on one CPU.
//!
//! `make orb-bench` (options in `ORB_BENCH`), or `cargo bench -p punctual-orb --bench omniorb -- [--json] [--cpu N] [--rounds N] [--long]`. Needs Debian's
//! `omniidl`, `libomniorb4-dev` and `g++`. Exit code 1 if a call takes longer than omniORB's by more than the noise.
//!
//! With `--long`, only a sequence of 1 GiB is measured, in turns with plain TCP; else it follows the others.
//!
//! Each ORB has one server and two clients, all programs of their own and all on one CPU; one client calls at a
//! time. The two clients of an ORB differ by noise only: A/A.

#[allow(dead_code, clippy::module_inception)]
#[path = "../../tests/generated/demo.rs"]
mod demo;
#[allow(dead_code)]
#[path = "../../tests/common/echo.rs"]
mod echo;
mod figures;
mod long;
mod ours;
mod programs;

use std::process::ExitCode;

use figures::{Rounds, half_width, median, quantile_us, ratios};
use long::SHARE_MIN;
use programs::{Omni, Program};
use punctual_orb::Endpoint;
use rustix::thread::{CpuSet, sched_setaffinity};

/// What is called, and how often in a round.
const CASES: [(&str, usize); 4] = [("octet", 2_000), ("struct", 2_000), ("string", 2_000), ("structs", 200)];

/// A round of a client that does not count.
const WARM_UP: usize = 1_000;

/// How the benchmark runs.
struct Wanted {
    is_json: bool,
    cpu: usize,
    rounds: usize,
    /// Only the sequence of 1 GiB.
    is_long: bool,
}

/// What was measured for one case over one transport.
struct Figure {
    transport: &'static str,
    case: &'static str,
    /// Ours and omniORB's: p50 and p99.9, us.
    ours_us: [f64; 2],
    omni_us: [f64; 2],
    /// Ours over omniORB's, of p50.
    ratio: f64,
    /// Ours over ours, and omniORB's over omniORB's.
    identical: [f64; 2],
    half_width: f64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", "long"] => long::serve(),
        ["serve", "plain"] => long::serve_plain(),
        ["plain", address] => long::call_plain(address),
        ["serve", "tcp"] => ours::serve(Endpoint::tcp("127.0.0.1", 0)),
        ["serve", path] => ours::serve(Endpoint::Unix(path.into())),
        ["client", reference] => ours::call(reference),
        _ => return bench(&wanted(&words)),
    }
    ExitCode::SUCCESS
}

fn wanted(words: &[&str]) -> Wanted {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut wanted = Wanted { is_json: false, cpu: last, rounds: 30, is_long: false };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut number =
            || rest.next().and_then(|word| word.parse().ok()).expect("a number behind the option");
        match *word {
            "--json" => wanted.is_json = true,
            "--long" => wanted.is_long = true,
            "--cpu" => wanted.cpu = number(),
            "--rounds" => wanted.rounds = number(),
            other => panic!("unknown option {other}"),
        }
    }
    wanted
}

fn bench(wanted: &Wanted) -> ExitCode {
    let mut cpus = CpuSet::new();
    cpus.set(wanted.cpu);
    let omni = if wanted.is_long { None } else { Omni::build() };
    if omni.is_none() && !wanted.is_long {
        punctual_skip::skipped!("no omniORB. Install it: apt-get install omniidl libomniorb4-dev g++");
        return ExitCode::SUCCESS;
    }
    // Programs that it starts inherit it.
    sched_setaffinity(None, &cpus).expect("the CPU is there");
    let figures = omni.map_or_else(Vec::new, |omni| against_omni(&omni, wanted));
    let long = long::measure();
    if wanted.is_json {
        print_json(&figures, &long, wanted)
    } else {
        print(&figures);
        print_long(&long);
    }
    let is_slower = figures.iter().any(|one| one.ratio > 1.0 + one.half_width) || long.share < SHARE_MIN;
    ExitCode::from(u8::from(is_slower))
}

fn against_omni(omni: &Omni, wanted: &Wanted) -> Vec<Figure> {
    let folder = std::env::temp_dir().join(format!("punctual-orb-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let [at_ours, at_omni] = ["ours", "omni"].map(|name| folder.join(name).display().to_string());
    let mut figures = over("tcp", "tcp", "giop:tcp:127.0.0.1:", omni, wanted);
    figures.extend(over("unix", &at_ours, &format!("giop:unix:{at_omni}"), omni, wanted));
    // It is in the folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    figures
}

/// All cases over one transport.
fn over(transport: &'static str, ours: &str, at_omni: &str, omni: &Omni, wanted: &Wanted) -> Vec<Figure> {
    let mut servers = [programs::ours(&["serve", ours]), omni.start("server", &["-ORBendPoint", at_omni])];
    let [reference, of_omni] = servers.each_mut().map(Program::reference);
    let our_client = || programs::ours(&["client", &reference]);
    let omni_client = || omni.start("client", &[&of_omni]);
    let mut clients = [our_client(), omni_client(), our_client(), omni_client()];
    CASES.map(|case| measure(transport, case, &mut clients, wanted.rounds)).into()
}

fn measure(
    transport: &'static str,
    (case, count): (&'static str, usize),
    clients: &mut [Program; 4],
    rounds: usize,
) -> Figure {
    let mut spans = [const { Rounds::new() }; 4];
    clients.iter_mut().for_each(|client| drop(client.call(case, WARM_UP.min(count))));
    for round in 0..rounds {
        // Each of the four is the first by turns.
        for place in 0..4 {
            let who = (round + place) % 4;
            spans[who].push(clients[who].call(case, count));
        }
    }
    let [ours, omni, ours_again, omni_again] = &spans;
    let mut both = ratios(ours, omni);
    both.extend(ratios(ours_again, omni_again));
    let of_ours = ratios(ours_again, ours);
    let of = |sides: [&Rounds; 2]| [0.5, 0.999].map(|share| quantile_us(&sides, share));
    Figure {
        transport,
        case,
        ours_us: of([ours, ours_again]),
        omni_us: of([omni, omni_again]),
        ratio: median(&mut both),
        identical: [median(&mut of_ours.clone()), median(&mut ratios(omni_again, omni))],
        half_width: half_width(&of_ours),
    }
}

fn print(figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    println!(
        "transport  call     ours p50   p99.9  omniORB p50   p99.9   ratio  ours/ours  omni/omni  half-width"
    );
    for one in figures {
        let Figure { transport, case, ours_us, omni_us, ratio, identical, half_width } = one;
        println!(
            "{transport:9}  {case:7} {:6.2} us {:7.1}    {:6.2} us {:7.1}   {ratio:.3}      {:.3}      {:.3}       {half_width:.3}",
            ours_us[0], ours_us[1], omni_us[0], omni_us[1], identical[0], identical[1]
        );
    }
}

fn print_long(long: &long::Figure) {
    let long::Figure { ours_gb_s, tcp_gb_s, share, beyond_bytes } = long;
    let [client, server] = beyond_bytes.map(|bytes| bytes as f64 / 1e6);
    println!(
        "a sequence of 1 GiB: {ours_gb_s:.2} GB/s, plain TCP {tcp_gb_s:.2} GB/s, share {share:.3} (least {SHARE_MIN}); \
         memory beyond it: client {client:.1} MB, server {server:.1} MB"
    );
}

fn print_json(figures: &[Figure], long: &long::Figure, wanted: &Wanted) {
    let points: Vec<String> = figures
        .iter()
        .map(|one| {
            let Figure { transport, case, ours_us, omni_us, ratio, identical, half_width } = one;
            format!(
                "{{\"transport\": \"{transport}\", \"call\": \"{case}\", \"ours_p50_us\": {:.3}, \
                 \"ours_p99_9_us\": {:.3}, \"omniorb_p50_us\": {:.3}, \"omniorb_p99_9_us\": {:.3}, \
                 \"ratio\": {ratio:.4}, \"ours_over_ours\": {:.4}, \"omniorb_over_omniorb\": {:.4}, \
                 \"half_width\": {half_width:.4}}}",
                ours_us[0], ours_us[1], omni_us[0], omni_us[1], identical[0], identical[1]
            )
        })
        .collect();
    let (cpu, rounds) = (wanted.cpu, wanted.rounds);
    let long::Figure { ours_gb_s, tcp_gb_s, share, beyond_bytes: [client, server] } = long;
    println!(
        "{{\"cpu\": {cpu}, \"rounds\": {rounds}, \"points\": [{}], \"long\": {{\"ours_gb_s\": {ours_gb_s:.3}, \
         \"tcp_gb_s\": {tcp_gb_s:.3}, \"share\": {share:.4}, \"client_beyond_bytes\": {client}, \
         \"server_beyond_bytes\": {server}}}}}",
        points.join(", ")
    );
}
