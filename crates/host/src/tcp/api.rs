//! States, ends and settings of connections as the API has them.

use punctual_engine::tcp::{Ended, TcpConfig, TcpSetting as Setting, TcpState as State};
use punctual_ipc::api::{TcpEnd, TcpSetting, TcpSettings, TcpState};

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

/// A setting that a program changes.
pub const fn engine_setting(setting: TcpSetting) -> Setting {
    match setting {
        TcpSetting::NoDelay(is_nodelay) => Setting::NoDelay(is_nodelay),
        TcpSetting::KeepAlive(idle) => Setting::KeepAlive(idle),
        TcpSetting::HopLimit(hops) => Setting::HopLimit(hops),
        TcpSetting::UserTimeout(timeout) => Setting::UserTimeout(timeout),
    }
}

/// The settings of a connection.
pub const fn api_settings(config: &TcpConfig) -> TcpSettings {
    TcpSettings {
        nodelay: config.is_nodelay,
        keep_alive: config.keep_alive,
        hop_limit: config.hop_limit,
        user_timeout: config.user_timeout,
        receive_bytes: config.receive_bytes as u64,
        send_bytes: config.send_bytes as u64,
    }
}
