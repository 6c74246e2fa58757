//! What one best-effort TCP connection carries: beside smoltcp alone on the same driver, each way, and beside the kernel's CUBIC over
//! a link that takes time and loses packets.
//!
//! Worlds with two hosts and a CPU each. At host b the kernel runs TCP in all of them, so that only one end differs. smoltcp alone
//! has one thread, which reads and writes, too: no admission, no scheduler, no rings to a program. It runs twice (A/A).

use std::net::SocketAddr;

use punctual::tcp::Qos;
use punctual::{BitRate, Nanos};
use punctual_link::Link;
use punctual_link::kernel::Mac;
use serde_json::json;

use super::{Conditions, Measured, exceedance, judged};
use crate::excuse::Excuses;
use crate::loads::tcp::KernelTcp;
use crate::loads::{Class, Wait};
use crate::measure::laps::rate_of;
use crate::measure::{Side, Statistic, compare_rounds};
use crate::report::{Bars, Plot, Row, Series};
use crate::testbed::bare_tcp::BareTcp;
use crate::testbed::network::{address, hardware_number};
use crate::testbed::one_way::{ByteStream, OneEnd, Way, carry};
use crate::testbed::tcp::BUFFER_BYTES;
use crate::testbed::{Distance, LinkSpec, Options, PairSetup, TcpPlan, TcpStack, TcpWorld};

/// Above what the machine carries, so that it is not the configured rate that limits.
const TOLD: BitRate = BitRate(10_000_000_000);
/// As many packets in the driver as are worth a system call.
const LINK: &str =
    "flows_max = 32\nlisteners_max = 16\npipeline_depth = 32\nreaction = \"20us\"\nframes = 4096\n";
/// 10 ms there and back, one packet of a thousand lost in each direction.
const FAR: Distance = Distance { delay: Nanos::from_millis(5), lost_ppm: 1_000, seed: 1_604 };
const FAR_RATE: BitRate = BitRate(1_000_000_000);
/// Bytes of a lap, near and far: some milliseconds.
const LAP_BYTES: [u64; 2] = [256 << 10, 64 << 10];
/// Port of smoltcp's end; the kernel of that host uses none.
const LOCAL_PORT: u16 = 40_000;
const WAYS: [Way; 2] = [Way::Out, Way::In];
/// Least share of smoltcp's throughput, and of the kernel's over the far link.
const SHARE_MIN: [f64; 2] = [0.85, 0.5];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bare,
    Stack(TcpStack),
}

const NEAR: [(&str, Kind); 4] = [
    ("smoltcp alone", Kind::Bare),
    ("Punctual", Kind::Stack(TcpStack::PunctualToKernel)),
    ("smoltcp alone again", Kind::Bare),
    ("kernel", Kind::Stack(TcpStack::Plain)),
];
const LOSSY: [(&str, Kind); 3] = [
    ("kernel", Kind::Stack(TcpStack::Plain)),
    ("Punctual", Kind::Stack(TcpStack::PunctualToKernel)),
    ("kernel again", Kind::Stack(TcpStack::Plain)),
];
/// Places in both lists: what Punctual is compared with, Punctual, and the former again.
const BASE: usize = 0;
const PUNCTUAL: usize = 1;
const AGAIN: usize = 2;

/// A world: its connection, and the times of laps, by way. Connections go before their hosts.
struct Carrier {
    name: &'static str,
    near: OneEnd,
    far: OneEnd,
    sides: [Side; WAYS.len()],
    /// b's driver beside smoltcp alone. It has no user: its program lets packets of the kernel pass, as it does in Punctual's world.
    _far_driver: Option<Box<dyn Link>>,
    _hosts: TcpWorld,
}

impl Carrier {
    fn create(
        (name, kind): (&'static str, Kind),
        link: LinkSpec,
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        conditions.progress(format_args!("{name}"));
        let setup = PairSetup { link, pinned: true };
        let plan = TcpPlan { link: LINK, cubic: true, ..TcpPlan::default() };
        let stack = match kind {
            Kind::Bare => TcpStack::Plain,
            Kind::Stack(stack) => stack,
        };
        let mut hosts = TcpWorld::create_as(stack, plan, &setup, conditions)?;
        let ([near, far], far_driver) = match kind {
            Kind::Bare => bare(&mut hosts, conditions)?,
            Kind::Stack(_) => (hosts.connect(Qos::BestEffort)?.map(ByteStream::Connection), None),
        };
        // smoltcp alone does what Punctual's processor does, in its class.
        let class = if kind == Kind::Bare { conditions.class() } else { Class::Ordinary };
        let near = OneEnd { stream: near, place: hosts.pair().place.clone(), class };
        let far = OneEnd { stream: far, place: hosts.pair().far_place()?.clone(), class: Class::Ordinary };
        Ok(Self { name, near, far, sides: Default::default(), _far_driver: far_driver, _hosts: hosts })
    }

    fn turn(&mut self, way: Way, length: Nanos, lap_bytes: u64) -> anyhow::Result<()> {
        let (from, to) = match way {
            Way::Out => (&mut self.near, &mut self.far),
            Way::In => (&mut self.far, &mut self.near),
        };
        let laps = carry(from, to, length, lap_bytes)?;
        self.sides[way as usize].push(laps);
        Ok(())
    }
}

/// Both ends of a connection, and b's driver if nobody else has it.
type Connected = ([ByteStream; 2], Option<Box<dyn Link>>);

/// A connection of smoltcp alone at a to the kernel at b, and b's driver.
fn bare(hosts: &mut TcpWorld, conditions: &Conditions) -> anyhow::Result<Connected> {
    let options = Options { link: LINK.into(), ..conditions.options() };
    let (link, far_driver) = hosts.pair().adapters(&options)?;
    let (listener, remote) = hosts.listen_at_far()?;
    let local = SocketAddr::from((address(0, 1), LOCAL_PORT));
    let bare = BareTcp::connect(link, [local, remote], Mac::from_number(hardware_number(2)), BUFFER_BYTES)?;
    let far = KernelTcp::new(listener.accept()?.0, Wait::Block, BUFFER_BYTES)?.with_cubic()?;
    Ok(([ByteStream::Bare(Box::new(bare)), ByteStream::Connection(Box::new(far))], Some(far_driver)))
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let create = |link: LinkSpec| move |world| Carrier::create(world, link, conditions);
    let mut near = NEAR.into_iter().map(create(LinkSpec::direct(TOLD))).collect::<Result<Vec<_>, _>>()?;
    let far = LinkSpec::far(FAR_RATE, FAR);
    let mut lossy = LOSSY.into_iter().map(create(far)).collect::<Result<Vec<_>, _>>()?;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((4, 500), (20, 2_000));
    for way in WAYS {
        conditions.in_turns(&format!("{way:?}, "), count, &mut near, |_, one| {
            one.turn(way, length, LAP_BYTES[0])
        })?;
    }
    let (count, length) = conditions.rounds((3, 3_000), (6, 20_000));
    conditions.in_turns("far, ", count, &mut lossy, |_, one| one.turn(Way::Out, length, LAP_BYTES[1]))?;
    judged(witness, |excuses| Ok(judge([&near, &lossy], excuses)))
}

fn judge(parts: [&[Carrier]; 2], excuses: &Excuses) -> Measured {
    let columns = "link, way, world, mbit_s, mbit_s_with_holes, laps, slowest_lap_ms, excused, resent";
    let mut measured = Measured::new("way", columns);
    let mut bars = Vec::new();
    for (part, (worlds, link)) in parts.into_iter().zip(["direct", "10 ms, 0.1 % lost"]).enumerate() {
        for way in WAYS.into_iter().filter(|&way| part == 0 || way == Way::Out) {
            let word = if way == Way::Out { "sending" } else { "receiving" };
            for world in worlds {
                let figures = measured.count(&world.sides[way as usize], excuses);
                let [mbit_s, with_holes] = [figures.clean, figures.with_holes]
                    .map(|laps| rate_of(LAP_BYTES[part], laps.mean_us) * 8e-6);
                measured.add([json!({
                    "link": link, "way": word, "world": world.name, "mbit_s": mbit_s,
                    "mbit_s_with_holes": with_holes, "laps": figures.with_holes.samples,
                    "slowest_lap_ms": figures.with_holes.max_us / 1e3,
                    "excused": figures.excused, "resent": world.near.stream.resent(),
                })]);
                bars.push((format!("{link}, {word}: {}", world.name), mbit_s, 2 * part + way as usize));
            }
            let side = |world: usize| &worlds[world].sides[way as usize];
            // A ratio of times: the smaller, the faster.
            let found = compare_rounds(side(BASE), side(PUNCTUAL), side(AGAIN), Statistic::Mean, excuses);
            let name = format!(
                "{link}, {word}: throughput of one best-effort connection against {} (A/A {:.3}, half-width {:.3})",
                worlds[BASE].name,
                1.0 / found.identical,
                found.half_width
            );
            measured.at_least(name, 1.0 / found.ratio, SHARE_MIN[part]);
        }
    }
    measured.plot = Some(plot(parts[0], excuses));
    measured.rows.push(Row::Bars(vec![Bars::named("Throughput of one connection", "Mbit/s", bars)]));
    measured
}

/// Times of laps on the direct link, sending.
fn plot(worlds: &[Carrier], excuses: &Excuses) -> Plot {
    let series = worlds.iter().enumerate().map(|(colour, world)| {
        let points = exceedance(&world.sides[Way::Out as usize], excuses);
        Series::new(world.name, colour, points).dashed(world.name == NEAR[AGAIN].0)
    });
    let title = format!("Sending {} KiB on the direct link takes longer than", LAP_BYTES[0] >> 10);
    Plot::tails(&title, "us", "share", series)
}
