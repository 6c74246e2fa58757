//! States and ends of connections as the API has them.

use punctual_engine::tcp::{Ended, TcpState as State};
use punctual_ipc::api::{TcpEnd, TcpState};

/// Why a connection ended.
pub const fn api_end(why: Ended) -> TcpEnd {
    match why {
        Ended::Closed => TcpEnd::Closed,
        Ended::Reset => TcpEnd::Reset,
        Ended::Refused => TcpEnd::Refused,
        Ended::TimedOut => TcpEnd::TimedOut,
        Ended::Unreachable => TcpEnd::Unreachable,
        Ended::Aborted => TcpEnd::Aborted,
    }
}

/// The state of a connection.
pub const fn api_state(state: State) -> TcpState {
    match state {
        State::SynSent => TcpState::SynSent,
        State::SynReceived => TcpState::SynReceived,
        State::Established => TcpState::Established,
        State::FinWait1 => TcpState::FinWait1,
        State::FinWait2 => TcpState::FinWait2,
        State::CloseWait => TcpState::CloseWait,
        State::Closing => TcpState::Closing,
        State::LastAck => TcpState::LastAck,
        State::TimeWait => TcpState::TimeWait,
        State::Closed => TcpState::Closed,
    }
}
