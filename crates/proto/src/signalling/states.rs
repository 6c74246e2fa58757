//! A channel's states at one node as a transition table (CLIPS 4.2: "consistent connection state
//! management").
//!
//! Each (role, state, input) without a row is unexpected: it is counted, and nothing changes. Entering
//! [`State::Gone`] releases the channel's stages and removes it.

use crate::api::Role;

/// State of a channel at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A probe is under way (source only: no other node stores a probe).
    Probing,
    /// Refused; a probe tests what can be offered instead (source only).
    Offering,
    /// Held here, CREATE is on its way.
    Creating,
    /// Held and committed at the sink; the application is asked for consent.
    Asking,
    /// Committed, ACCEPT is on its way back.
    Accepted,
    /// Committed; the reply waits until the outgoing link meets the bounds.
    Fitting,
    /// The source has the ACCEPT.
    Open,
    /// The channel takes no new messages; packets under way still arrive.
    Draining,
    /// All packets have left this node (the source, or a node between). It holds nothing any more and waits
    /// for the sink's final report, which implies that all nodes behind have released the channel.
    Settling,
    /// Released and removed.
    Gone,
}

/// Events of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The CREATE was received again.
    CreateAgain,
    Accept,
    Refuse,
    Probed,
    Confirm,
    /// Data was received: the source has the ACCEPT (sink only).
    FirstData,
    /// DESTROY from the side of the source.
    DestroyForward,
    /// DESTROY from the side of the sink.
    DestroyBack,
    /// The application accepts.
    Consent,
    /// The application refuses.
    Deny,
    /// The application closes its end.
    Close,
    /// The stages are final, but the outgoing link does not meet their bounds yet.
    NotYet,
    /// The outgoing link now meets the final bounds.
    Fitted,
    /// The stages could not be made final.
    CommitFailed,
    /// No reply of the application (sink) or of the network (source).
    Silence,
    /// No packet is under way any more, or the time for it is over.
    Drained,
    /// The sink's final report.
    Ended,
    LeaseOver,
    /// The neighbour on the side of the source went down or restarted.
    UpstreamLost,
    /// The neighbour on the side of the sink went down or restarted.
    DownstreamLost,
}

/// Actions of a node on an input, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the local stages final; on failure [`Input::CommitFailed`] takes over.
    Commit,
    SendAccept,
    SendConfirm,
    /// REFUSE towards the source.
    SendRefuse,
    /// DESTROY towards the sink.
    DestroyForward,
    /// DESTROY towards the source.
    DestroyBack,
    /// Store the reply, and start the timer of its wait.
    KeepAnswer,
    /// Start the timer for packets that are queued or under way.
    StartGrace,
    /// Start the timer for the sink's final report.
    StartSettling,
    /// Store the sink's final report until the nodes between have released the channel.
    KeepWord,
    /// Send the source the counts of what has passed here.
    SendPassed,
    /// Send the sink's final report to the source: the close that it began is complete.
    SendDone,
    /// Send the sink's final report to the source when the sink closes.
    SendEnded,
    TellOpened,
    TellProbed,
    TellEstablished,
    TellClosed,
    /// The next candidate route, the next offer, or the refusal to the application. Only with [`State::Gone`].
    TryNext,
}

/// One row of the table: in `state`, `input` leads to `next` and takes `actions`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub role: Role,
    pub state: State,
    pub input: Input,
    pub next: State,
    pub actions: &'static [Action],
}

const fn source(state: State, input: Input, next: State, actions: &'static [Action]) -> Row {
    Row { role: Role::Source, state, input, next, actions }
}
const fn forwarder(state: State, input: Input, next: State, actions: &'static [Action]) -> Row {
    Row { role: Role::Forwarder, state, input, next, actions }
}
const fn sink(state: State, input: Input, next: State, actions: &'static [Action]) -> Row {
    Row { role: Role::Sink, state, input, next, actions }
}

use Action as A;
use Input as I;
use State as S;

/// The transition table of the protocol.
pub const TABLE: &[Row] = &[
    // Source: a probe.
    source(S::Probing, I::Probed, S::Gone, &[A::TellProbed]),
    source(S::Probing, I::Refuse, S::Gone, &[A::TryNext]),
    source(S::Probing, I::Silence, S::Gone, &[A::TryNext]),
    source(S::Probing, I::DownstreamLost, S::Gone, &[A::TryNext]),
    source(S::Probing, I::Close, S::Gone, &[A::TellClosed]),
    // Source: refused; the offer is probed.
    source(S::Offering, I::Probed, S::Gone, &[A::TryNext]),
    source(S::Offering, I::Refuse, S::Gone, &[A::TryNext]),
    source(S::Offering, I::Silence, S::Gone, &[A::TryNext]),
    source(S::Offering, I::DownstreamLost, S::Gone, &[A::TryNext]),
    source(S::Offering, I::Close, S::Gone, &[A::TellClosed]),
    // Source: establishment.
    source(S::Creating, I::Accept, S::Open, &[A::Commit, A::SendConfirm, A::TellOpened]),
    source(S::Creating, I::CommitFailed, S::Gone, &[A::DestroyForward, A::TryNext]),
    source(S::Creating, I::Refuse, S::Gone, &[A::TryNext]),
    source(S::Creating, I::DestroyBack, S::Gone, &[A::TryNext]),
    source(S::Creating, I::DownstreamLost, S::Gone, &[A::TryNext]),
    source(S::Creating, I::Silence, S::Gone, &[A::DestroyForward, A::TryNext]),
    source(S::Creating, I::Close, S::Gone, &[A::DestroyForward, A::TellClosed]),
    // Source: granted once the kernel has returned its part of the link.
    source(S::Creating, I::NotYet, S::Fitting, &[A::KeepAnswer]),
    source(S::Fitting, I::Fitted, S::Open, &[A::SendConfirm, A::TellOpened]),
    source(S::Fitting, I::DestroyBack, S::Gone, &[A::TryNext]),
    source(S::Fitting, I::DownstreamLost, S::Gone, &[A::TryNext]),
    source(S::Fitting, I::Silence, S::Gone, &[A::DestroyForward, A::TryNext]),
    source(S::Fitting, I::Close, S::Gone, &[A::DestroyForward, A::TellClosed]),
    // Source: open and closing.
    source(S::Open, I::Close, S::Draining, &[A::StartGrace]),
    source(S::Open, I::Ended, S::Gone, &[A::DestroyForward, A::TellClosed]),
    source(S::Open, I::DestroyBack, S::Gone, &[A::TellClosed]),
    source(S::Open, I::LeaseOver, S::Gone, &[A::DestroyForward, A::TellClosed]),
    source(S::Open, I::DownstreamLost, S::Gone, &[A::TellClosed]),
    source(S::Draining, I::Drained, S::Settling, &[A::DestroyForward, A::StartSettling]),
    source(S::Draining, I::DestroyBack, S::Gone, &[A::TellClosed]),
    source(S::Draining, I::Ended, S::Gone, &[A::DestroyForward, A::TellClosed]),
    source(S::Draining, I::DownstreamLost, S::Gone, &[A::TellClosed]),
    // The end of the channel follows directly, from host to host.
    source(S::Settling, I::Ended, S::Settling, &[A::KeepWord]),
    source(S::Settling, I::DestroyBack, S::Gone, &[A::TellClosed]),
    source(S::Settling, I::DownstreamLost, S::Gone, &[A::TellClosed]),
    source(S::Settling, I::Silence, S::Gone, &[A::TellClosed]),
    // Forwarder: establishment.
    forwarder(S::Creating, I::CreateAgain, S::Creating, &[]),
    forwarder(S::Creating, I::Accept, S::Accepted, &[A::Commit, A::SendAccept]),
    forwarder(S::Creating, I::CommitFailed, S::Gone, &[A::DestroyForward, A::SendRefuse]),
    forwarder(S::Creating, I::Refuse, S::Gone, &[A::SendRefuse]),
    forwarder(S::Creating, I::DestroyForward, S::Gone, &[A::DestroyForward]),
    forwarder(S::Creating, I::DestroyBack, S::Gone, &[A::SendRefuse]),
    forwarder(S::Creating, I::UpstreamLost, S::Gone, &[A::DestroyForward]),
    forwarder(S::Creating, I::DownstreamLost, S::Gone, &[A::SendRefuse]),
    forwarder(S::Creating, I::LeaseOver, S::Gone, &[A::DestroyForward, A::DestroyBack]),
    // Forwarder: the same wait for the link.
    forwarder(S::Creating, I::NotYet, S::Fitting, &[A::KeepAnswer]),
    forwarder(S::Fitting, I::CreateAgain, S::Fitting, &[]),
    forwarder(S::Fitting, I::Fitted, S::Accepted, &[A::SendAccept]),
    forwarder(S::Fitting, I::Silence, S::Gone, &[A::DestroyForward, A::SendRefuse]),
    forwarder(S::Fitting, I::DestroyForward, S::Gone, &[A::DestroyForward]),
    forwarder(S::Fitting, I::DestroyBack, S::Gone, &[A::SendRefuse]),
    forwarder(S::Fitting, I::UpstreamLost, S::Gone, &[A::DestroyForward]),
    forwarder(S::Fitting, I::DownstreamLost, S::Gone, &[A::SendRefuse]),
    forwarder(S::Fitting, I::LeaseOver, S::Gone, &[A::DestroyForward, A::DestroyBack]),
    forwarder(S::Accepted, I::CreateAgain, S::Accepted, &[]),
    forwarder(S::Accepted, I::Confirm, S::Open, &[A::SendConfirm]),
    // No data can have been sent: CONFIRM precedes DESTROY.
    forwarder(S::Accepted, I::DestroyForward, S::Gone, &[A::DestroyForward]),
    forwarder(S::Accepted, I::DestroyBack, S::Gone, &[A::DestroyBack]),
    forwarder(S::Accepted, I::UpstreamLost, S::Gone, &[A::DestroyForward]),
    forwarder(S::Accepted, I::DownstreamLost, S::Gone, &[A::DestroyBack]),
    forwarder(S::Accepted, I::LeaseOver, S::Gone, &[A::DestroyForward, A::DestroyBack]),
    // Forwarder: open and closing.
    forwarder(S::Open, I::CreateAgain, S::Open, &[]),
    forwarder(S::Open, I::DestroyForward, S::Draining, &[A::DestroyForward, A::StartGrace]),
    forwarder(S::Open, I::DestroyBack, S::Gone, &[A::DestroyBack]),
    forwarder(S::Open, I::UpstreamLost, S::Gone, &[A::DestroyForward]),
    forwarder(S::Open, I::DownstreamLost, S::Gone, &[A::DestroyBack]),
    forwarder(S::Open, I::LeaseOver, S::Gone, &[A::DestroyForward, A::DestroyBack]),
    forwarder(S::Draining, I::Drained, S::Settling, &[A::SendPassed]),
    forwarder(S::Draining, I::DestroyBack, S::Gone, &[A::SendPassed, A::DestroyBack]),
    // Packets under way are still forwarded, for as long as the last refresh allows.
    forwarder(S::Draining, I::UpstreamLost, S::Draining, &[]),
    forwarder(S::Draining, I::DownstreamLost, S::Gone, &[A::DestroyBack]),
    forwarder(S::Draining, I::LeaseOver, S::Gone, &[A::DestroyForward, A::DestroyBack]),
    forwarder(S::Settling, I::DestroyBack, S::Gone, &[A::DestroyBack]),
    forwarder(S::Settling, I::UpstreamLost, S::Gone, &[]),
    forwarder(S::Settling, I::DownstreamLost, S::Gone, &[A::DestroyBack]),
    forwarder(S::Settling, I::LeaseOver, S::Gone, &[A::DestroyBack]),
    // Sink: establishment.
    sink(S::Asking, I::CreateAgain, S::Asking, &[]),
    sink(S::Asking, I::Consent, S::Accepted, &[A::SendAccept]),
    sink(S::Asking, I::Deny, S::Gone, &[A::SendRefuse]),
    sink(S::Asking, I::Close, S::Gone, &[A::SendRefuse, A::TellClosed]),
    sink(S::Asking, I::Silence, S::Gone, &[A::SendRefuse, A::TellClosed]),
    sink(S::Asking, I::DestroyForward, S::Gone, &[A::TellClosed]),
    sink(S::Asking, I::UpstreamLost, S::Gone, &[A::TellClosed]),
    sink(S::Asking, I::LeaseOver, S::Gone, &[A::DestroyBack, A::TellClosed]),
    sink(S::Accepted, I::CreateAgain, S::Accepted, &[]),
    sink(S::Accepted, I::Confirm, S::Open, &[A::TellEstablished]),
    // The sink need not wait for CONFIRM, which has a turn of its own on each link.
    sink(S::Accepted, I::FirstData, S::Open, &[A::TellEstablished]),
    sink(S::Accepted, I::DestroyForward, S::Gone, &[A::TellClosed]),
    sink(S::Accepted, I::Close, S::Gone, &[A::DestroyBack, A::TellClosed]),
    sink(S::Accepted, I::UpstreamLost, S::Gone, &[A::TellClosed]),
    sink(S::Accepted, I::LeaseOver, S::Gone, &[A::DestroyBack, A::TellClosed]),
    // Sink: open and closing.
    sink(S::Open, I::CreateAgain, S::Open, &[]),
    sink(S::Open, I::Confirm, S::Open, &[]),
    sink(S::Open, I::DestroyForward, S::Draining, &[A::StartGrace]),
    sink(S::Open, I::Close, S::Gone, &[A::SendEnded, A::DestroyBack, A::TellClosed]),
    sink(S::Open, I::UpstreamLost, S::Gone, &[A::TellClosed]),
    sink(S::Open, I::LeaseOver, S::Gone, &[A::DestroyBack, A::TellClosed]),
    // The nodes between need not wait for packets that this end will not take.
    sink(S::Draining, I::Drained, S::Gone, &[A::SendDone, A::DestroyBack, A::TellClosed]),
    sink(S::Draining, I::Close, S::Gone, &[A::SendEnded, A::DestroyBack, A::TellClosed]),
    sink(S::Draining, I::LeaseOver, S::Gone, &[A::SendEnded, A::DestroyBack, A::TellClosed]),
    sink(S::Draining, I::UpstreamLost, S::Draining, &[]),
];

/// The row for an input; `None` if the input is unexpected.
pub fn transition(role: Role, state: State, input: Input) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.role == role && row.state == state && row.input == input)
}

impl State {
    /// Whether the channel's stages are held here.
    pub const fn holds(self) -> bool {
        !matches!(self, Self::Probing | Self::Offering | Self::Settling | Self::Gone)
    }
    /// The name of the state in the output of `channels`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::Offering => "offering",
            Self::Creating => "creating",
            Self::Asking => "asking",
            Self::Accepted => "accepted",
            Self::Fitting => "fitting",
            Self::Open => "open",
            Self::Draining => "draining",
            Self::Settling => "settling",
            Self::Gone => "gone",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 3] = [Role::Source, Role::Forwarder, Role::Sink];
    const STATES: [State; 10] = [
        S::Probing,
        S::Offering,
        S::Creating,
        S::Asking,
        S::Accepted,
        S::Fitting,
        S::Open,
        S::Draining,
        S::Settling,
        S::Gone,
    ];
    const INPUTS: [Input; 20] = [
        I::CreateAgain,
        I::Accept,
        I::Refuse,
        I::Probed,
        I::Confirm,
        I::FirstData,
        I::DestroyForward,
        I::DestroyBack,
        I::Consent,
        I::Deny,
        I::Close,
        I::CommitFailed,
        I::NotYet,
        I::Fitted,
        I::Silence,
        I::Drained,
        I::Ended,
        I::LeaseOver,
        I::UpstreamLost,
        I::DownstreamLost,
    ];

    /// States that a role can reach by the table from its initial state.
    fn reachable(role: Role) -> alloc::vec::Vec<State> {
        let mut found = match role {
            Role::Source => alloc::vec![S::Probing, S::Offering, S::Creating],
            Role::Forwarder => alloc::vec![S::Creating],
            Role::Sink => alloc::vec![S::Asking],
        };
        let mut index = 0;
        while let Some(state) = found.get(index).copied() {
            for row in TABLE.iter().filter(|row| row.role == role && row.state == state) {
                if !found.contains(&row.next) {
                    found.push(row.next);
                }
            }
            index += 1;
        }
        found
    }

    #[test]
    fn every_pair_has_at_most_one_row_and_every_row_is_used() {
        let mut rows = 0;
        for role in ROLES {
            for state in STATES {
                for input in INPUTS {
                    let matching = TABLE
                        .iter()
                        .filter(|r| r.role == role && r.state == state && r.input == input)
                        .count();
                    assert!(matching <= 1, "{role:?} {state:?} {input:?}");
                    assert!(
                        matching == 0 || reachable(role).contains(&state),
                        "{role:?} {state:?} is never reached"
                    );
                    rows += matching;
                }
            }
        }
        assert_eq!(rows, TABLE.len());
    }

    #[test]
    fn nothing_can_be_left_behind() {
        for role in ROLES {
            for state in reachable(role).into_iter().filter(|state| *state != S::Gone) {
                let ends = |input| transition(role, state, input).is_some_and(|row| row.next == S::Gone);
                let by_itself = ends(I::LeaseOver) || ends(I::Silence) || ends(I::Drained);
                let by_neighbour = ends(I::DownstreamLost);
                assert!(by_itself || by_neighbour, "{role:?} {state:?} has no end that needs no peer");
                if role != Role::Source {
                    assert!(ends(I::LeaseOver), "{role:?} {state:?}");
                    assert!(ends(I::UpstreamLost) || state == S::Draining, "{role:?} {state:?}");
                }
            }
        }
    }

    #[test]
    fn ends_are_reported_exactly_once() {
        for row in TABLE.iter().filter(|row| row.next == S::Gone && row.role != Role::Forwarder) {
            let reported = [A::TellClosed, A::TellProbed, A::TryNext];
            let count = row.actions.iter().filter(|action| reported.contains(action)).count();
            let denied = row.input == I::Deny;
            assert_eq!(count, usize::from(!denied), "{row:?}");
        }
        let gone = |row: &&Row| row.actions.contains(&A::TryNext) || row.actions.contains(&A::TellClosed);
        assert!(TABLE.iter().filter(gone).all(|row| row.next == S::Gone));
    }

    #[test]
    fn whatever_commits_can_fail_to() {
        for row in TABLE.iter().filter(|row| row.actions.contains(&A::Commit)) {
            let failed = transition(row.role, row.state, I::CommitFailed);
            assert!(failed.is_some_and(|failed| failed.next == S::Gone), "{row:?}");
        }
    }

    #[test]
    fn gone_is_the_end() {
        assert!(ROLES.iter().all(|r| INPUTS.iter().all(|i| transition(*r, S::Gone, *i).is_none())));
    }
}
