//! The log of a host about links and channels: a line for each event, up to a number in a minute; further
//! events are only counted. For channels each user has a number of their own.
//!
//! The thread that serves applications writes the log when it reads the node's events; the processor never
//! does.

use punctual_engine::tcp::TcpRefusal;
use punctual_proto::api::{
    BrokenStage, CloseReason, LateStage, LinkChange, MeasuredRate, RateRefusal, UserId,
};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::LinkId;
use punctual_proto::limiter::Limiter;
use punctual_proto::text::harmless;
use punctual_proto::{Instant, Nanos};
use std::collections::HashMap;
use std::net::SocketAddr;

/// The target of the log lines, which operators' filters name.
const TARGET: &str = "punctual::journal";

/// Lines of one kind within [`WHILE`].
const LINES: u32 = 10;
/// Users with an allowance of their own.
const USERS: usize = 128;
const WHILE: Nanos = Nanos::from_secs(60);

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Reports something that is as it should be.
    Info(String),
    /// Reports a problem that an operator should examine.
    Warn(String),
}

impl Line {
    /// Writes the line to the log.
    pub(crate) fn write(self) {
        match self {
            Self::Info(text) => tracing::info!(target: TARGET, "{}", harmless(&text)),
            Self::Warn(text) => tracing::warn!(target: TARGET, "{}", harmless(&text)),
        }
    }
}

struct Link {
    /// "link NAME to HOST".
    name: String,
    neighbour: String,
    limiter: Limiter,
}

/// A limiter for each user: lines of one user take no room from those of another.
#[derive(Default)]
struct PerUser {
    users: HashMap<UserId, Limiter>,
    /// Limiter of all users that come when there are [`USERS`] already.
    others: Option<Limiter>,
}

impl PerUser {
    fn pass(&mut self, user: UserId, now: Instant) -> Option<u64> {
        if self.users.len() >= USERS && !self.users.contains_key(&user) {
            self.users.retain(|_, limiter| !limiter.is_over(now));
        }
        let new = || Limiter::new(LINES, WHILE);
        if self.users.len() >= USERS && !self.users.contains_key(&user) {
            return self.others.get_or_insert_with(new).pass(now);
        }
        self.users.entry(user).or_insert_with(new).pass(now)
    }
}

/// Limits the number of log lines about links, channels and stages.
pub(crate) struct Journal {
    links: Vec<Link>,
    channels: PerUser,
    stages: Limiter,
    late: Limiter,
    /// This host's name.
    own: String,
}

impl Journal {
    /// The journal of a node that has reported nothing yet.
    pub(crate) fn new(node: &NodeConfig) -> Self {
        let link = |link: &punctual_proto::config::LinkConfig| {
            let neighbour = node.host_name(link.neighbour);
            let name = format!("link {} to {neighbour}", link.name);
            Link { name, neighbour, limiter: Limiter::new(LINES, WHILE) }
        };
        let limiter = || Limiter::new(LINES, WHILE);
        Self {
            links: node.links.iter().map(link).collect(),
            channels: PerUser::default(),
            stages: limiter(),
            late: limiter(),
            own: node.name.to_string(),
        }
    }

    /// Line about a link's change at `now`; `None` if there are too many.
    pub(crate) fn link(&mut self, link: LinkId, change: LinkChange, now: Instant) -> Option<Line> {
        let Link { name, neighbour, limiter } = self.links.get_mut(usize::from(link.0))?;
        // The node itself limits these reports to one a minute.
        if let LinkChange::Unauthenticated { packets } = change {
            return Some(Line::Warn(format!("{name}: {}", authentication_fails(neighbour, packets))));
        }
        let left_out = left_out(limiter.pass(now)?);
        Some(match change {
            LinkChange::Up => Line::Info(format!("{name} is up{left_out}")),
            LinkChange::Restarted => Line::Warn(format!(
                "{name}: {neighbour} has lost its channels (its daemon was restarted){left_out}"
            )),
            _ => Line::Warn(format!(
                "{name} is down: {neighbour} does not answer; is its daemon running, and do packets get through?{left_out}"
            )),
        })
    }

    /// Line about the measured drain rate of a link, or why it was not measured, at `now`. No line if another
    /// host is measuring.
    pub(crate) fn rate(
        &mut self,
        link: LinkId,
        result: Result<MeasuredRate, RateRefusal>,
        now: Instant,
    ) -> Option<Line> {
        if result == Err(RateRefusal::Busy) {
            return None;
        }
        let Link { name, limiter, .. } = self.links.get_mut(usize::from(link.0))?;
        let left_out = left_out(limiter.pass(now)?);
        Some(match result {
            Ok(measured) => Line::Info(format!("{name} drains {measured}, as measured{left_out}")),
            Err(why) => Line::Warn(format!("{name} was not measured: {why}{left_out}")),
        })
    }

    /// Line about a stage of this host, or of a route of its channels, that breaks its promise, or has
    /// recovered (`healed`), at `now`.
    pub(crate) fn stage(&mut self, stage: &BrokenStage, healed: bool, now: Instant) -> Option<Line> {
        let left_out = left_out(self.stages.pass(now)?);
        let pass = match stage.channels.unwrap_or(0) {
            1 => "1 channel here passes it".to_owned(),
            channels => format!("{channels} channels here pass it"),
        };
        let name = stage.name();
        Some(match (healed, stage.host == self.own) {
            (true, true) => {
                Line::Info(format!("healed: {name}: it has kept its promise for a lease; {pass}{left_out}"))
            }
            (true, false) => {
                Line::Info(format!("healed: {name}: no host calls it late any more; {pass}{left_out}"))
            }
            (false, _) => Line::Warn(format!(
                "degraded: {stage}; {pass}; nothing is guaranteed across it until it has healed{left_out}"
            )),
        })
    }

    /// Line about a stage that was late but is not broken, at `now`. The node reports each about once a
    /// minute.
    pub(crate) fn late(&mut self, stage: &LateStage, now: Instant) -> Option<Line> {
        let left_out = left_out(self.late.pass(now)?);
        Some(Line::Warn(format!("late: {stage}; it counts as broken if this continues{left_out}")))
    }

    /// Line about a channel that ends here and was closed for `reason` at `now`. `what` names the channel;
    /// its end belongs to `account`. No line if a program closed it on purpose.
    pub(crate) fn closed(
        &mut self,
        account: UserId,
        what: &str,
        reason: CloseReason,
        now: Instant,
    ) -> Option<Line> {
        use CloseReason::{Local, Peer, PeerStopped, PeerVanished, Stopped, Vanished};
        let is_news = !matches!(reason, Local | Peer | Stopped);
        let left_out = left_out(is_news.then(|| self.channels.pass(account, now)).flatten()?);
        let text = format!("channel {what} lost: {}{left_out}", reason.text());
        Some(if matches!(reason, Vanished | PeerVanished | PeerStopped) {
            Line::Info(text)
        } else {
            Line::Warn(text)
        })
    }
}

impl Journal {
    /// Line about a connection that a listener of `account` had opened and that was refused at `now`.
    pub(crate) fn tcp_refused(
        &mut self,
        account: UserId,
        peer: SocketAddr,
        why: &TcpRefusal,
        now: Instant,
    ) -> Option<Line> {
        let left_out = left_out(self.channels.pass(account, now)?);
        Some(Line::Warn(format!("the TCP connection of {peer} was refused: {why}{left_out}")))
    }
}

/// The fault and its fix.
fn authentication_fails(neighbour: &str, packets: u64) -> String {
    format!(
        "packets from {neighbour} fail authentication ({packets} so far): compare [signalling] key and the ids of [[host]] \
         on both hosts"
    )
}

fn left_out(lines: u64) -> String {
    if lines == 0 { String::new() } else { format!(" ({lines} more such lines were left out)") }
}

#[cfg(test)]
mod tests {
    use punctual_proto::api::Cause;
    use punctual_proto::breach::Lateness;

    use super::*;

    const ANN: UserId = UserId(3_000_001);

    fn journal() -> Journal {
        let config = "[node]\nname = \"a\"\n[processor]\nbest_effort_host = true\n[daemon]\nsocket = \"/tmp/x\"\n\
             [signalling]\nkey = \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"\n\
             [[host]]\nname = \"a\"\nid = 1\n[[host]]\nname = \"b\"\nid = 2\n\
             [[link]]\nname = \"right\"\nneighbour = \"b\"\ndriver = \"memory\"\nrate = \"100Mbit/s\"\n";
        let host = crate::config::parse(config, std::path::Path::new("a.toml")).expect("a host");
        Journal::new(&host.node)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_secs(seconds)
    }

    fn text(line: Option<Line>) -> String {
        match line.expect("a line") {
            Line::Info(text) => format!("info {text}"),
            Line::Warn(text) => format!("warn {text}"),
        }
    }

    /// Whoever floods a listener writes ten lines a minute.
    #[test]
    fn refused_connections_have_a_bounded_number_of_lines() {
        let mut journal = journal();
        let peer = SocketAddr::from(([10, 0, 0, 2], 5_000));
        let mut refused = |user, now| journal.tcp_refused(user, peer, &TcpRefusal::Exhausted(8), now);
        let written: Vec<_> = (0..500).filter_map(|_| refused(ANN, at(1))).collect();
        assert_eq!(written.len(), LINES as usize);
        assert!(
            text(refused(UserId(7), at(1)))
                .starts_with("warn the TCP connection of 10.0.0.2:5000 was refused: all 8")
        );
        assert!(text(refused(ANN, at(62))).ends_with("(490 more such lines were left out)"));
    }

    #[test]
    fn a_user_without_lines_left_leaves_others_theirs() {
        let mut journal = journal();
        let mut lost =
            |user, now| journal.closed(UserId(user), "to cam@b", CloseReason::PathLost, now).is_some();
        assert_eq!((0..1_000).filter(|_| lost(ANN.0, at(1))).count(), LINES as usize);
        assert!(lost(0, at(1)) && lost(ANN.0 + 1, at(1)));
        // However many users come: those beyond the bound share one allowance, until others have been silent for a while.
        let crowd = (5_000..).take(10 * USERS).filter(|user| lost(*user, at(2))).count();
        assert_eq!(crowd, USERS - 3 + LINES as usize);
        assert!([9_999_999, ANN.0].iter().all(|user| lost(*user, at(70))));
        assert!(journal.channels.users.len() <= USERS);
    }

    #[test]
    fn links_are_named_with_what_became_of_them() {
        let mut journal = journal();
        let mut write = |change| text(journal.link(LinkId(0), change, at(1)));
        assert_eq!(write(LinkChange::Up), "info link right to b is up");
        assert!(write(LinkChange::Down).starts_with("warn link right to b is down: b does not answer;"));
        assert!(write(LinkChange::Restarted).starts_with("warn link right to b: b has lost its channels"));
        assert_eq!(
            write(LinkChange::Unauthenticated { packets: 3 }),
            "warn link right to b: packets from b fail authentication (3 so far): compare [signalling] key and the ids of \
             [[host]] on both hosts"
        );
        assert_eq!(journal.link(LinkId(7), LinkChange::Up, at(1)), None, "no such link");
    }

    #[test]
    fn a_late_stage_is_logged_apart_from_broken_ones() {
        use punctual_proto::api::{Cause, SeenIn};
        let late = punctual_proto::breach::Lateness { times: 1, by_max: Nanos::from_millis(150) };
        let (host, mut journal) = ("a".to_owned(), journal());
        let stage = LateStage { host: host.clone(), towards: None, late, seen_in: SeenIn::OwnClock };
        assert_eq!(
            text(journal.late(&stage, at(1))),
            "warn late: processor of a was up to 150.00 ms late, once in the last minute; it counts as broken \
             if this continues"
        );
        for _ in 0..20 {
            journal.late(&stage, at(2));
        }
        let broken =
            BrokenStage { host, towards: None, late, cause: Cause::SlowProcessor, channels: Some(1) };
        assert!(text(journal.stage(&broken, false, at(2))).starts_with("warn degraded: processor of a "));
    }

    #[test]
    fn a_link_that_flaps_is_logged_ten_times_a_minute() {
        let mut journal = journal();
        let change = |second: u64| if second.is_multiple_of(2) { LinkChange::Up } else { LinkChange::Down };
        let logged = (0..60).filter_map(|second| journal.link(LinkId(0), change(second), at(second)));
        assert_eq!(logged.count(), 10);
        assert!(
            text(journal.link(LinkId(0), LinkChange::Up, at(60)))
                .ends_with("(50 more such lines were left out)")
        );
    }

    #[test]
    fn a_stage_is_logged_with_its_number_of_channels_here() {
        let mut journal = journal();
        let mut write = |host: &str, channels, healed| {
            let stage = BrokenStage {
                host: host.into(),
                towards: Some("r".into()),
                late: Lateness { times: 9, by_max: Nanos::from_millis(12) },
                cause: Cause::LongerTravel,
                channels: Some(channels),
            };
            text(journal.stage(&stage, healed, at(1)))
        };
        assert_eq!(
            write("b", 3, false),
            "warn degraded: link b-r takes longer than its propagation_max and prediction_error; at first up to 12.00 ms late, \
             9 times in a second; 3 channels here pass it; nothing is guaranteed across it until it has healed"
        );
        assert_eq!(
            write("b", 1, true),
            "info healed: link b-r: no host calls it late any more; 1 channel here passes it"
        );
        assert!(
            write("a", 0, true)
                .starts_with("info healed: link a-r: it has kept its promise for a lease; 0 channels")
        );
    }

    #[test]
    fn a_channel_that_ended_without_a_close_is_logged_with_the_reason() {
        let mut journal = journal();
        for reason in [CloseReason::Local, CloseReason::Peer, CloseReason::Stopped] {
            assert_eq!(journal.closed(ANN, "to cam@b", reason, at(1)), None, "{reason:?}");
        }
        let mut write = |what, reason| text(journal.closed(ANN, what, reason, at(1)));
        assert_eq!(
            write("to cam@b", CloseReason::PathLost),
            "warn channel to cam@b lost: a link or node on the route is down"
        );
        assert!(write("cam from a", CloseReason::PeerVanished).starts_with("info channel cam from a lost: "));
        let logged = (0..1_000).filter_map(|_| journal.closed(ANN, "to cam@b", CloseReason::PathLost, at(2)));
        assert_eq!(logged.count(), 8, "with two before them ten");
    }
}
