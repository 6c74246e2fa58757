//! One seed's plan, drawn completely before anything runs: configurations, true behaviour, traffic, times.

mod channels;
mod digest;
mod drift;
mod hosts;
mod kernel;
mod paths;
mod requests;
mod routes;
mod soft;
pub(crate) mod tcp;
mod tight;
mod uptime;

use punctual_analysis::{BitRate, Contract, Nanos, Ppm};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::NodeId;
use punctual_proto::signalling::drain_max;
use thiserror::Error;

use self::channels::{draw_activations, draw_applications, draw_channels, draw_floods, draw_sizes};
use self::hosts::draw_hosts;
use self::kernel::lend_to_kernel;
use self::requests::draw_requests;
pub use self::requests::{Reply, RequestPlan};
use self::routes::give_routes;
pub(crate) use self::routes::is_routed;
use self::soft::make_soft;
use self::tcp::draw_tcp;
pub use self::tcp::{ConnectionPlan, Ending, Reads, TcpPlan, Writes};
use self::tight::{crowd, tighten};
use crate::dice::{Dice, Draw, mix};
use crate::faults::{self, Fault, FaultKind, FaultKinds};
use crate::options::{Class, FaultChoice, Faults, Options, ScheduleChoice, SizeChoice, Traffic};
use crate::time::{HostClock, SimTime};
use crate::topology::{Arrivals, Size, Topology};

/// Stream that determines the size of a seed's network, and whether it has a schedule of faults.
const CLASS_OF_SIZE: u64 = 0x517e;
const CLASS_OF_SCHEDULE: u64 = 0xfa17;

/// The plan.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Hosts, in the order of their node ids (host `n` is node `n + 1`).
    pub hosts: Vec<HostPlan>,
    /// Channels that applications request.
    pub channels: Vec<ChannelPlan>,
    /// Channels that receivers request.
    pub requests: Vec<RequestPlan>,
    /// Best-effort transfers with excess load.
    pub floods: Vec<FloodPlan>,
    /// Faults of frames; if there is a schedule, until it is over.
    pub faults: Faults,
    /// Schedule of other faults. If it is not empty, applications repeat their requests once it is over, and
    /// everything must work then.
    pub schedule: Vec<Fault>,
    /// TCP connections.
    pub tcp: TcpPlan,
    /// Phases of the run.
    pub times: Times,
}

/// One host: its configuration and its true behaviour.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Configuration of its node.
    pub config: NodeConfig,
    /// Its clock.
    pub clock: HostClock,
    /// Longest time that its idle processor takes to wake up.
    pub wake_max: Nanos,
    /// Whether its processor always takes the longest allowed time.
    pub slow: bool,
    /// True destinations of its links.
    pub links: Vec<LinkPlan>,
}

/// True behaviour of an outgoing link.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// The host at the other end.
    pub peer: usize,
    /// The same link's index there.
    pub peer_link: u16,
    /// True drain rate, at least the configured one less its error.
    pub rate: BitRate,
    /// Whether kernel traffic always uses all of its bound.
    pub busy: bool,
}

/// A channel that an application opens.
#[derive(Clone, Copy, Debug)]
pub struct ChannelPlan {
    /// Source host.
    pub from: usize,
    /// Sink host.
    pub to: usize,
    /// The requested contract.
    pub contract: Contract,
    /// Arrival pattern of its messages.
    pub arrivals: Arrivals,
    /// Whether it probes for the smallest deadline, and takes that.
    pub squeezes: bool,
    /// Whether all its messages have the largest size.
    pub full: bool,
    /// Whether its agent consents.
    pub consents: bool,
    /// Its agent never replies.
    pub silent: bool,
    /// One of hundreds that are requested at once; it is not requested again.
    pub storm: bool,
    /// Time at which its source vanishes without closing it; only the end of the run closes the channel.
    pub vanishes_at: Option<SimTime>,
    /// Time of its request.
    pub opens_at: SimTime,
    /// Time at which it is closed before the end.
    pub closes_at: Option<SimTime>,
    /// Whether the sink closes it, not the source.
    pub sink_closes: bool,
    /// Whether it is requested again after it was closed.
    pub reopens: bool,
}

/// A best-effort transfer.
#[derive(Clone, Copy, Debug)]
pub struct FloodPlan {
    /// Source host.
    pub from: usize,
    /// Sink host.
    pub to: usize,
    /// Size of its messages.
    pub message_bytes: u32,
    /// Interval between two messages.
    pub interval: Nanos,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// First opens; neighbours have met by HELLOs.
    pub opens: SimTime,
    /// Last opens.
    pub opened: SimTime,
    /// All faults of the schedule are over; without a schedule this phase has no effect.
    pub calm: SimTime,
    /// After-effects of faults must be over: applications without a channel request it again.
    pub heals: SimTime,
    /// Applications stop sending.
    pub stops: SimTime,
    /// Every promise is due; all channels are closed.
    pub closes: SimTime,
    /// One lease later: no state may be left. If there were faults, some channels are requested once more.
    pub revives: SimTime,
    /// No state may be left; nodes shut down.
    pub empty: SimTime,
    /// Nodes must be quiet.
    pub ends: SimTime,
}

/// A topology that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl Scenario {
    /// How much two honest clocks of the network may part at most: rho.
    pub(crate) fn drift_max(&self) -> Ppm {
        let tolerances = self.hosts.iter().map(|host| host.config.clock_tolerance.0);
        Ppm(2 * tolerances.max().unwrap_or(0))
    }

    /// The plan of `seed`.
    ///
    /// # Errors
    /// If the given topology contradicts itself.
    pub fn draw(seed: u64, options: &Options) -> Result<Self, ScenarioError> {
        let topology = match &options.topology {
            Some(topology) => topology.clone(),
            None => Topology::draw(size(seed, options.sizes), &mut Dice::of(seed, Draw::Topology)),
        };
        let mut dice = Dice::of(seed, Draw::Hosts);
        let faults = match options.faults {
            FaultChoice::These(faults) => faults,
            FaultChoice::Drawn => {
                let drawn = draw_faults(seed, &mut dice);
                if matches!(options.traffic, Traffic::Drift(_)) { Faults::NONE } else { drawn }
            }
        };
        let mut hosts = draw_hosts(&topology, seed, &mut dice)?;
        if class(seed, options) == Class::Lent {
            lend_to_kernel(&mut hosts, &mut Dice::of(seed, Draw::Kernel));
        }
        let mut dice = Dice::of(seed, Draw::Channels);
        let kinds = scheduled_kinds(seed, options);
        let times = Times::draw(options, &hosts, kinds != FaultKinds::NONE, &mut dice);
        let mut channels = draw_channels(&topology, &hosts, &times, &mut dice)?;
        let mut floods = draw_floods(&hosts, &mut dice);
        if matches!(seed % 8, 4..=6) || seed % 16 == 7 {
            draw_sizes(seed, &mut hosts);
            draw_activations(&topology, seed, &mut hosts, &mut channels);
        }
        match class(seed, options) {
            Class::Mixed | Class::Lent => {}
            Class::Soft => make_soft(seed, &mut hosts, &mut channels),
            Class::Tight => floods = tighten(seed, &mut hosts, &mut channels),
            Class::Crowded => floods = crowd(seed, &mut hosts, &mut channels),
        }
        let mut dice = Dice::of(seed, Draw::Schedule);
        let links: Vec<_> = hosts.iter().map(|host| host.links.len()).collect();
        let schedule = match &options.schedule {
            ScheduleChoice::These(schedule) => schedule.clone(),
            _ => faults::draw(kinds, &links, SimTime(times.opens.0 / 2), times.calm, &mut dice),
        };
        if kinds.has(FaultKind::Apps) && topology.channels.is_empty() {
            draw_applications(&mut channels, &hosts, &times, &mut Dice::of(seed, Draw::Applications));
        }
        let asks = class(seed, options) == Class::Mixed && topology.channels.is_empty();
        let asks = asks && matches!(options.traffic, Traffic::Drawn | Traffic::For(_));
        let requests = if asks { draw_requests(seed, &hosts, &times) } else { Vec::new() };
        let ends = channels.iter().map(|plan| (plan.from, plan.to));
        let ends = ends.chain(floods.iter().map(|plan| (plan.from, plan.to)));
        let both = |plan: &RequestPlan| [(plan.asker, plan.source), (plan.source, plan.asker)];
        give_routes(&mut hosts, ends.chain(requests.iter().flat_map(both)));
        let tcp = TcpPlan::default();
        let mut plan = Self { hosts, channels, requests, floods, faults, schedule, tcp, times };
        plan.times.wait_for(plan.drain_max());
        plan.tcp = draw_tcp(seed, options, (&mut plan.hosts, &mut plan.floods), &mut plan.times);
        match options.traffic {
            Traffic::Drawn | Traffic::For(_) => {}
            Traffic::Uptime(span) => uptime::stretch(&mut plan, span, &mut Dice::of(seed, Draw::Uptime)),
            Traffic::Drift(span) => drift::stretch(&mut plan, span, &mut Dice::of(seed, Draw::Drift)),
        }
        Ok(plan)
    }

    /// Whether the sources of soft channels are independent of each other, so that soft channels have a
    /// promise.
    pub fn is_independent(&self) -> bool {
        let soft = |plan: &&ChannelPlan| plan.contract.statistical.is_some();
        self.channels.iter().filter(soft).all(|plan| plan.arrivals == Arrivals::Independent)
    }

    /// Time at which all TCP connections must be over.
    pub fn tcp_ends(&self) -> SimTime {
        self.times.closes + self.tcp.drain
    }

    /// Whether the plan has a schedule of faults, and with it the phase in which everything must work again.
    pub fn heals(&self) -> bool {
        self.times.heals > self.times.opened
    }
}

/// A share is free for a second before it is lent, and the shaper takes its time.
const LENT_AFTER: Nanos = Nanos::from_millis(1_200);

/// Size of a seed's network.
fn size(seed: u64, choice: SizeChoice) -> Size {
    match choice {
        SizeChoice::Small => Size::Small,
        SizeChoice::Medium => Size::Medium,
        SizeChoice::Large => Size::Large,
        SizeChoice::Huge => Size::Huge,
        SizeChoice::Drawn => match mix(seed ^ CLASS_OF_SIZE) % 512 {
            0 => Size::Huge,
            1..=4 => Size::Large,
            5..=29 => Size::Medium,
            _ => Size::Small,
        },
    }
}

/// Kinds of faults of a seed's schedule.
fn scheduled_kinds(seed: u64, options: &Options) -> FaultKinds {
    match options.schedule {
        ScheduleChoice::Kinds(kinds) => kinds,
        ScheduleChoice::These(_) => FaultKinds::NONE.with(FaultKind::Frames),
        ScheduleChoice::Drawn => {
            let drawn = !matches!(options.traffic, Traffic::Drift(_))
                && options.faults == FaultChoice::Drawn
                && mix(seed ^ CLASS_OF_SCHEDULE).is_multiple_of(2);
            if drawn && matches!(class(seed, options), Class::Mixed | Class::Soft) {
                FaultKinds::ALL
            } else {
                FaultKinds::NONE
            }
        }
    }
}

/// The class of a run: larger networks are mixed unless another class is requested.
fn class(seed: u64, options: &Options) -> Class {
    let drawn = if size(seed, options.sizes) == Size::Small { class_of(seed) } else { Class::Mixed };
    let drawn = if drawn == Class::Soft && options.topology.is_some() { Class::Mixed } else { drawn };
    options.class.unwrap_or(drawn)
}

/// A few seeds are of a class of their own; its runs take longer.
fn class_of(seed: u64) -> Class {
    match (seed % 32, seed % 256) {
        (13, _) => Class::Tight,
        (21, _) => Class::Lent,
        (_, 94) => Class::Crowded,
        _ if seed % 8 == 4 => Class::Soft,
        _ => Class::Mixed,
    }
}

impl Scenario {
    /// The longest time that any of the channels may need to close.
    pub(crate) fn drain_max(&self) -> Nanos {
        let asked = self.requests.iter().map(|request| &request.contract);
        let contracts = self.channels.iter().map(|channel| &channel.contract).chain(asked);
        contracts.map(drain_max).max().unwrap_or_default()
    }
}

impl Times {
    fn draw(options: &Options, hosts: &[HostPlan], heals: bool, dice: &mut Dice) -> Self {
        let traffic = match options.traffic {
            Traffic::For(span) => span,
            _ => Nanos(dice.between(800_000_000, 1_500_000_000)),
        };
        let signalling = &hosts[0].config.signalling;
        // If kernel traffic follows admission, it has been lent a share by then.
        let lends = hosts.iter().flat_map(|host| &host.config.links).any(|link| link.follows());
        let lent = if lends { LENT_AFTER } else { Nanos::ZERO };
        let opens = SimTime(0) + signalling.hello_interval * 4 + lent;
        let opened = opens + Nanos::from_millis(600);
        let calm = opened + traffic;
        // Leases expire, neighbours meet, requests that were under way are given up.
        let healed = calm + signalling.lease + signalling.hello_interval * 8;
        let (heals, stops) = if heals { (healed, healed + HEALED_TRAFFIC) } else { (opens, calm) };
        let closes = stops + DEADLINE_MAX + signalling.grace + Nanos::from_millis(100);
        let revives = closes + signalling.lease + signalling.grace + Nanos::from_millis(500);
        let empty = if heals > opened { revives + REVIVAL * (REVIVALS + 1) } else { revives };
        Self { opens, opened, calm, heals, stops, closes, revives, empty, ends: empty + Nanos::from_secs(2) }
    }

    /// Time for which applications send once all channels are requested and all after-effects are over.
    pub fn traffic(&self) -> Nanos {
        self.stops.since(self.opened.max(self.heals))
    }

    /// Sets this time; all later phases keep their distances.
    pub fn set_traffic(&mut self, span: Nanos) {
        let planned = self.traffic();
        let after = [&mut self.stops, &mut self.closes, &mut self.revives, &mut self.empty, &mut self.ends];
        for at in after {
            *at = *at - planned + span;
        }
    }

    /// Gives channels that are closed at the same time `drain` to send the messages in their rings.
    fn wait_for(&mut self, drain: Nanos) {
        let more = drain + FAREWELL - self.revives.since(self.closes);
        for at in [&mut self.revives, &mut self.empty, &mut self.ends] {
            *at = *at + more;
        }
    }

    /// Adds time for closing: a channel takes up to `span` until all messages in its ring are sent; so does
    /// each that is requested alone at the end.
    pub fn add_drain(&mut self, span: Nanos) {
        let revivals = if self.empty > self.revives { REVIVALS + 1 } else { 0 };
        self.revives = self.revives + span;
        for at in [&mut self.empty, &mut self.ends] {
            *at = *at + span * (revivals + 1);
        }
    }
}

/// Longest deadline and burst recovery that is drawn.
pub(crate) const DEADLINE_MAX: Nanos = Nanos::from_millis(400);

/// Channels that are requested alone, at the end.
pub(crate) const REVIVALS: u64 = 3;
/// Duration of each of them.
const REVIVAL: Nanos = Nanos::from_millis(600);

/// Time from a channel's last message until all its state is released.
const FAREWELL: Nanos = Nanos::from_millis(300);

/// Time for which applications continue after the faults.
const HEALED_TRAFFIC: Nanos = Nanos::from_millis(900);

fn draw_faults(seed: u64, dice: &mut Dice) -> Faults {
    if seed % 4 != 3 {
        return Faults::NONE;
    }
    let mut rate = || Ppm(dice.between(0, 1).saturating_mul(dice.between(100, 5_000)) as u32);
    let (loss, duplicate, delay, corrupt) = (rate(), rate(), rate(), rate());
    Faults { loss, duplicate, delay, corrupt, delay_max: Nanos::from_millis(dice.between(1, 30)) }
}

/// The node of a host.
pub(crate) fn node_id(host: usize) -> NodeId {
    NodeId(host as u32 + 1)
}

/// The host of a node; it need not exist.
pub(crate) fn host_of(node: NodeId) -> Option<usize> {
    (node.0 as usize).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_a_route_and_a_ring_has_two() {
        let text = r#"{"host":[{"name":"a"},{"name":"b"},{"name":"c"}],
            "link":[{"between":["a","b"]},{"between":["b","c"]},{"between":["c","a"]}]}"#;
        let topology = Topology::parse(text).expect("good");
        let scenario =
            Scenario::draw(1, &Options { topology: Some(topology), ..Options::default() }).expect("good");
        let via: Vec<_> = scenario.hosts[0].config.routes.iter().map(|route| route.via.clone()).collect();
        let ids = |ids: &[u32]| ids.iter().map(|&id| NodeId(id)).collect::<Vec<_>>();
        assert_eq!(via, [ids(&[2]), ids(&[3, 2]), ids(&[3]), ids(&[2, 3])]);
    }

    #[test]
    fn plans_repeat_and_their_parts_fit() {
        for seed in 0..200 {
            let one = Scenario::draw(seed, &Options::default()).expect("drawn");
            let two = Scenario::draw(seed, &Options::default()).expect("drawn");
            assert_eq!(format!("{one:?}"), format!("{two:?}"), "seed {seed}");
            for host in &one.hosts {
                for (link, config) in host.links.iter().zip(&host.config.links) {
                    assert!(link.rate >= config.rate.less(config.rate_error), "seed {seed}");
                    let back = one.hosts[link.peer].links[usize::from(link.peer_link)];
                    assert_eq!(node_id(back.peer), host.config.id, "seed {seed}");
                }
            }
            for channel in &one.channels {
                assert!(channel.contract.validate().is_ok() && channel.from != channel.to, "seed {seed}");
            }
        }
    }

    /// An hour of little traffic is a valid plan, too: hours pass before the phases after the traffic.
    #[test]
    fn stretched_plans_fit_too() {
        let hour = Nanos::from_secs(3_600);
        for seed in 0..64 {
            let sizes = SizeChoice::Small;
            for traffic in [Traffic::Uptime(hour), Traffic::Drift(hour)] {
                let options = Options { sizes, traffic, ..Options::default() };
                let plan = Scenario::draw(seed, &options).expect("drawn");
                for channel in &plan.channels {
                    assert_eq!(channel.contract.validate(), Ok(()), "seed {seed}");
                    assert!(channel.opens_at < plan.times.stops, "seed {seed}");
                }
                let Times { stops, closes, revives, empty, ends, .. } = plan.times;
                assert_eq!(plan.times.traffic(), hour, "seed {seed}");
                assert!([stops, closes, revives, empty, ends].is_sorted(), "seed {seed}: {:?}", plan.times);
            }
        }
    }
}
