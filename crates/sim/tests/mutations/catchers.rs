//! Checkers that detect faults: each takes a seed and describes a violation, if there is one.

use punctual_analysis::Nanos;
use punctual_proto::api::Event;
use punctual_proto::config::{NodeConfig, RouteConfig};
use punctual_proto::ids::NodeId;
use punctual_sim::{Class, FaultChoice, FaultKind, FaultKinds, Faults, Options, SizeChoice, Traffic};

use crate::checks::{arrivals, demand, link, oracle, soft_limit};
use crate::common::{hops, rate};
use crate::network::{Network, SECOND};
use crate::{endsystem, linksched_model, properties, soundness, statistical};

/// A checker and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Catcher {
    /// The simulator, networks drawn from the seed.
    Drawn,
    /// The simulator, small margins.
    Tight,
    /// The simulator, links that channels reserve completely.
    Crowded,
    /// The simulator, kernel traffic that has the share that is not reserved.
    Lent,
    /// The simulator, TCP connections beside channels and over them.
    Tcp,
    /// The simulator, one assumption broken.
    Breach,
    /// The oracle, on the reservations of the policy of this name.
    Oracle(&'static str),
    /// The simulation of one stage with adversarial arrivals, on channels that the policy of this name
    /// admits.
    Stage(&'static str),
    /// The simulation of one link, packet by packet.
    Link,
    /// Hostile packets at one channel's effective arrivals.
    Arrivals,
    /// A sequence of operations: hosts in a row, one of them crashes, HELLOs are too rare to detect it.
    Crash,
    /// Measurements of links, any wire.
    Rate,
    /// A sequence of operations: two hosts that claim to be the same life of one node request a channel each.
    Twin,
    /// EDF's stages, the demand-bound test by brute force.
    Demand,
    /// Soft channels beside hard ones that are served early.
    Soft,
    /// Soft channels at the limit of what is admitted, all phases of their sources.
    SoftLimit,
    /// A link scheduler beside its model.
    Order,
    /// Two TCP endsystems on a wire.
    Endsystems,
    /// A conversation of neighbours.
    Talk(Talk),
    /// A host on a channel's route.
    Hop(Hop),
}

/// Events of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// They open channels with near and with far deadlines.
    Bounds,
    /// One direction loses all packets for a while.
    OneWay,
    /// The medium loses all packets for a short time.
    Outage,
    /// They have more channels than one REFRESH can name.
    Crowd,
}

/// Events of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// All packets that may be in time arrive at once.
    Bucket,
    /// It sends its driver the number of buffers.
    Buffers,
    /// Its processor is stopped for a while.
    Stillness,
    /// Best effort arrives in bursts.
    Heaps,
}

/// Time for which applications send if margins are small: left-out terms show at once.
const SHORT_TRAFFIC: Nanos = Nanos::from_millis(300);

impl Catcher {
    /// Name of the checker.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drawn | Self::Tight | Self::Crowded | Self::Lent | Self::Tcp | Self::Breach => "simulator",
            Self::Oracle(_) => "oracle (response-time-analysis)",
            Self::Stage(_) => "stage simulation",
            Self::Link => "link simulation",
            Self::Arrivals => "hostile arrivals",
            Self::Rate => "measured wires",
            Self::Crash | Self::Twin | Self::Talk(_) => "signalling operations",
            Self::Demand => "demand-bound test by brute force",
            Self::Soft => "simulation of soft channels",
            Self::SoftLimit => "soft channels in all phases",
            Self::Order => "model of the link scheduler",
            Self::Endsystems => "TCP endsystems",
            Self::Hop(_) => "hosts in a row",
        }
    }

    /// Its configuration.
    pub fn configuration(self) -> String {
        match self {
            Self::Drawn => "drawn networks, faults in every fourth".into(),
            Self::Tight => "class tight, no link faults".into(),
            Self::Crowded => "class crowded, no link faults".into(),
            Self::Lent => "class lent, no link faults".into(),
            Self::Tcp => "small networks, TCP connections beside and over channels".into(),
            Self::Breach => "small networks, one assumption broken".into(),
            Self::Oracle(policy) => format!("what {policy} holds, bounds least or wider"),
            Self::Stage(policy) => format!("what {policy} admits, at and off its critical instants"),
            Self::Link => "what edf admits, depth 1 to 4, window full of best effort".into(),
            Self::Arrivals => "any numbers, sizes and slack".into(),
            Self::Crash => "four hosts in a row, a crash at any step, HELLO every 30 s".into(),
            Self::Rate => "any rate, bucket and queue, a stall".into(),
            Self::Twin => "two lives of one node, the same path over two links".into(),
            Self::Demand => "what edf admits, r up to nine tenths of a period".into(),
            Self::Soft => "what statistical admits beside hard channels that come early, in heaps".into(),
            Self::SoftLimit => "bursts as often as statistical admits beside a rare channel".into(),
            Self::Endsystems => "a program writes while its bytes are in flight".into(),
            Self::Order => "any steps, soft and early channels among them".into(),
            Self::Talk(talk) => talk.configuration().into(),
            Self::Hop(hop) => hop.configuration().into(),
        }
    }

    /// The unit of its work, and the number of units within which it must detect the fault.
    pub fn limit(self) -> (&'static str, u64) {
        match self {
            Self::Drawn
            | Self::Tight
            | Self::Crowded
            | Self::Lent
            | Self::Tcp
            | Self::Breach
            | Self::Crash
            | Self::Twin
            | Self::Rate
            | Self::Soft
            | Self::Order
            | Self::Endsystems
            | Self::Talk(_)
            | Self::Hop(_) => ("seed", 500),
            Self::Oracle(_)
            | Self::Stage(_)
            | Self::Link
            | Self::Arrivals
            | Self::Demand
            | Self::SoftLimit => ("set", 20_000),
        }
    }

    /// Smallest number of runs or sets of the core without a fault that must pass.
    pub fn honest(self) -> u64 {
        match self {
            Self::Talk(Talk::Crowd) => 2,
            Self::Crowded | Self::Breach | Self::Soft => 20,
            Self::Tight | Self::Lent => 40,
            Self::Drawn
            | Self::Tcp
            | Self::Crash
            | Self::Twin
            | Self::Rate
            | Self::SoftLimit
            | Self::Endsystems
            | Self::Talk(_)
            | Self::Hop(_) => 100,
            Self::Oracle(_) | Self::Stage(_) | Self::Link | Self::Arrivals | Self::Demand | Self::Order => {
                2_000
            }
        }
    }

    /// The violation in the run or set of `seed`.
    pub fn catch(self, seed: u64) -> Option<String> {
        match self {
            Self::Drawn => simulate(seed, &Options::default()),
            Self::Tight => simulate(seed, &of_class(Class::Tight)),
            Self::Crowded => simulate(seed, &Options { traffic: Traffic::Drawn, ..of_class(Class::Crowded) }),
            Self::Lent => simulate(seed, &of_class(Class::Lent)),
            Self::Tcp => simulate(seed, &with_tcp()),
            Self::Breach => untrue(seed),
            Self::Oracle(policy) => oracle::broken_bound(policy, seed),
            Self::Stage(policy) => soundness::missed(policy, seed),
            Self::Link => link::late_packet(seed),
            Self::Arrivals => arrivals::excess(seed),
            Self::Crash => crash(seed),
            Self::Twin => twin(seed),
            Self::Rate => rate::wrong(seed),
            Self::Demand => demand::overdue(seed),
            Self::Soft => statistical::missed(seed),
            Self::SoftLimit => soft_limit::exceeded(seed),
            Self::Order => linksched_model::differs(seed),
            Self::Endsystems => endsystem::waiting_bytes(seed),
            Self::Talk(talk) => talk.catch(seed),
            Self::Hop(hop) => hop.catch(seed),
        }
    }
}

impl Talk {
    fn configuration(self) -> &'static str {
        match self {
            Self::Bounds => "hosts in a row, bounds up to thousands of I",
            Self::OneWay => "hosts in a row, one direction of a link silent for up to 12 s",
            Self::Outage => "hosts in a row, all links or one direction away for 2 s",
            Self::Crowd => "hosts in a row, over 1,000 channels for 70 s",
        }
    }

    fn catch(self, seed: u64) -> Option<String> {
        match self {
            Self::Bounds => properties::error_without_drift(seed),
            Self::OneWay => properties::one_way_silence(seed),
            Self::Outage => properties::short_outage(seed),
            Self::Crowd => properties::many_refreshed(seed),
        }
    }
}

impl Hop {
    fn configuration(self) -> &'static str {
        match self {
            Self::Bucket => "all that may be in time at once",
            Self::Buffers => "the driver's filters beside what the node keeps",
            Self::Stillness => "two channels, a processor without time within its bounds",
            Self::Heaps => "best effort in heaps that queue 2 refuses",
        }
    }

    fn catch(self, seed: u64) -> Option<String> {
        match self {
            Self::Bucket => hops::bucket_too_small(seed),
            Self::Buffers => hops::buffers_too_few(seed),
            Self::Stillness => hops::served_out_of_order(seed),
            Self::Heaps => hops::best_effort_stuck(seed),
        }
    }
}

fn of_class(class: Class) -> Options {
    Options {
        class: Some(class),
        faults: FaultChoice::These(Faults::NONE),
        traffic: Traffic::For(SHORT_TRAFFIC),
        ..Options::default()
    }
}

fn with_tcp() -> Options {
    let traffic = Traffic::For(SHORT_TRAFFIC);
    Options { tcp: true, sizes: SizeChoice::Small, traffic, ..Options::default() }
}

fn simulate(seed: u64, options: &Options) -> Option<String> {
    match punctual_sim::run(seed, options) {
        Ok(outcome) => outcome.violations.into_iter().next().map(|violation| violation.what),
        Err(error) => Some(error.to_string()),
    }
}

/// Untrue reports of lateness, or a broken stage that is not reported.
fn untrue(seed: u64) -> Option<String> {
    let options = Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::For(Nanos::from_secs(4)),
        ..Options::default().with_faults(FaultKinds::NONE.with(FaultKind::Breach))
    };
    let reported = match punctual_sim::run(seed, &options) {
        Ok(outcome) => match outcome.violations.into_iter().next() {
            Some(violation) => return Some(violation.what),
            None => outcome.reported,
        },
        Err(error) => return Some(error.to_string()),
    };
    (reported.named < reported.breaches)
        .then(|| format!("a broken stage is not named within a second: {reported:?}"))
}

/// A host of four in a row crashes at some step of a channel's establishment or end: a lease later no host
/// holds state of it.
fn crash(seed: u64) -> Option<String> {
    let rare = |_: usize, config: &mut NodeConfig| config.signalling.hello_interval = Nanos::from_secs(30);
    let mut network = Network::line(seed, 4, rare);
    network.run(SECOND);
    network.open(0, 3, 50);
    let until = network.now + 20 * SECOND;
    for _ in 0..seed / 4 % 40 {
        network.step(until);
    }
    network.crash(seed as usize % 4);
    network.run(22 * SECOND);
    let held: Vec<_> = network.hosts.iter().map(|host| host.stages.held.len()).collect();
    (!network.nothing_held()).then(|| format!("a lease after a crash the hosts hold {held:?} channels"))
}

/// Hosts 0 and 4 are node 1 in the same life; both open their first channel to host 2, which is the same path, over
/// different links of host 1.
fn twin(seed: u64) -> Option<String> {
    let tune = |index: usize, config: &mut NodeConfig| {
        let via: &[u32] = match index {
            0 => &[2, 3],
            4 => &[4, 2, 3],
            _ => &[],
        };
        if !via.is_empty() {
            config.id = NodeId(1);
            config.routes.push(RouteConfig { via: via.iter().map(|&node| NodeId(node)).collect() });
        }
        for link in config.links.iter_mut().filter(|link| link.neighbour == NodeId(5)) {
            link.neighbour = NodeId(1);
        }
    };
    let mut network = Network::new(seed, 5, &[(0, 1), (1, 2), (3, 1), (4, 3)], tune);
    network.run(SECOND);
    network.open(0, 2, 50);
    network.open(4, 2, 50);
    network.run(SECOND);
    let asked = network.count(2, |event| matches!(event, Event::Incoming(_)));
    let held = network.hosts[1].stages.holds;
    let once = held == 1 && asked == 1;
    (!once).then(|| format!("one path is held {held} times and its receiver asked {asked} times"))
}
