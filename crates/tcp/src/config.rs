//! Settings of a connection that a program may choose.

use punctual_analysis::Nanos;

use crate::limits::ACK_SEGMENTS_MAX;

/// Shortest idle time before a keep-alive that a running connection takes.
const KEEP_ALIVE_MIN: Nanos = Nanos::from_millis(100);

/// Settings of a connection. [`Config::default`] suits a bulk transfer over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes received and not yet read, 1 to 2^30; larger values are reduced. The window scale follows from
    /// it (RFC 7323 2).
    pub receive_bytes: usize,
    /// Bytes sent and not yet acknowledged, at least 1.
    pub send_bytes: usize,
    /// Largest IP packet of the device in bytes, 576 to 65,535 (IPv6: from 1,280); other values are clamped
    /// to that range.
    pub mtu_bytes: u16,
    /// Send small segments at once, without waiting for acknowledgements (no Nagle, RFC 9293 3.7.4).
    pub is_nodelay: bool,
    /// Offer timestamps (RFC 7323 3).
    pub has_timestamps: bool,
    /// Idle time after which a keep-alive segment is sent (RFC 9293 3.8.4); none by default.
    pub keep_alive: Option<Nanos>,
    /// Longest time that an acknowledgement may wait for data to be sent with; at most 500 ms (RFC 9293
    /// 3.8.6.3).
    pub ack_delay: Nanos,
    /// Segments that an acknowledgement may wait for while more of them are in the connection's queue, 1 to
    /// [`ACK_SEGMENTS_MAX`](crate::ACK_SEGMENTS_MAX); by default 1, which waits for none. More cost fewer acknowledgements, as
    /// segments that a device merges do (RFC 5681 4.2 calls them stretched). Only for a connection whose queue is processed without
    /// a pause.
    pub ack_segments: u32,
    /// Longest time that the peer may leave data unacknowledged before the connection ends (RFC 9293 3.8.3,
    /// R2: at least 100 s). A SYN waits for at most three minutes of it. A peer that keeps its window closed and answers is not
    /// silent (RFC 9293 3.8.6.1).
    pub user_timeout: Nanos,
    /// Maximum segment lifetime; TIME-WAIT lasts twice that (RFC 9293 3.4.2 requires two minutes; Linux and
    /// BSD use 30 s).
    pub msl: Nanos,
    /// Time to live or hop limit, 1 to 255; 0 counts as 64.
    pub hop_limit: u8,
}

/// A setting that may change while the connection exists. Values are clamped as those of [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// [`Config::is_nodelay`].
    NoDelay(bool),
    /// [`Config::keep_alive`].
    KeepAlive(Option<Nanos>),
    /// [`Config::hop_limit`].
    HopLimit(u8),
    /// [`Config::user_timeout`]; zero: the default.
    UserTimeout(Nanos),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_bytes: 256 * 1024,
            send_bytes: 256 * 1024,
            mtu_bytes: 1500,
            is_nodelay: false,
            has_timestamps: true,
            keep_alive: None,
            ack_delay: Nanos::from_millis(10),
            ack_segments: 1,
            user_timeout: Nanos::from_secs(900),
            msl: Nanos::from_secs(30),
            hop_limit: 64,
        }
    }
}

impl Config {
    /// These settings with one changed.
    pub(crate) fn with(mut self, setting: Setting) -> Self {
        match setting {
            Setting::NoDelay(is_nodelay) => self.is_nodelay = is_nodelay,
            // A keep-alive without pause would be a flood.
            Setting::KeepAlive(idle) => self.keep_alive = idle.map(|idle| idle.max(KEEP_ALIVE_MIN)),
            Setting::HopLimit(hops) => self.hop_limit = if hops == 0 { 64 } else { hops },
            // As with other systems.
            Setting::UserTimeout(Nanos::ZERO) => self.user_timeout = Self::default().user_timeout,
            Setting::UserTimeout(timeout) => self.user_timeout = timeout,
        }
        self
    }

    /// These settings clamped to their ranges, for a flow over IPv6 or IPv4.
    pub(crate) fn bounded(mut self, is_v6: bool) -> Self {
        self.receive_bytes = self.receive_bytes.clamp(1, 1 << 30);
        self.send_bytes = self.send_bytes.max(1);
        self.mtu_bytes = self.mtu_bytes.max(if is_v6 { 1280 } else { 576 });
        self.ack_delay = self.ack_delay.min(Nanos::from_millis(500));
        self.ack_segments = self.ack_segments.clamp(1, ACK_SEGMENTS_MAX);
        if self.hop_limit == 0 {
            self.hop_limit = 64;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(change: impl FnOnce(&mut Config), is_v6: bool) -> Config {
        let mut config = Config::default();
        change(&mut config);
        config.bounded(is_v6)
    }

    #[test]
    fn values_out_of_range_are_moved_into_it() {
        assert_eq!(bounded(|it| it.receive_bytes = usize::MAX, false).receive_bytes, 1 << 30);
        assert_eq!(bounded(|it| it.receive_bytes = 0, false).receive_bytes, 1);
        assert_eq!(bounded(|it| it.send_bytes = 0, false).send_bytes, 1);
        assert_eq!(bounded(|it| it.mtu_bytes = 0, false).mtu_bytes, 576);
        assert_eq!(bounded(|it| it.mtu_bytes = 576, true).mtu_bytes, 1280);
        assert_eq!(
            bounded(|it| it.ack_delay = Nanos::from_secs(9), false).ack_delay,
            Nanos::from_millis(500)
        );
        assert_eq!(bounded(|it| it.ack_segments = 0, false).ack_segments, 1);
        assert_eq!(bounded(|it| it.ack_segments = 33, false).ack_segments, 32);
        assert_eq!(bounded(|it| it.hop_limit = 0, false).hop_limit, 64);
    }

    /// RFC 9293 3.8.3 (R2) and 3.4.2, RFC 1122 3.2.1.7: what the documents state.
    #[test]
    fn defaults_are_those_of_the_documents() {
        let config = Config::default();
        assert_eq!((config.receive_bytes, config.send_bytes, config.mtu_bytes), (262_144, 262_144, 1_500));
        assert_eq!((config.user_timeout, config.msl), (Nanos::from_secs(900), Nanos::from_secs(30)));
        assert_eq!((config.ack_delay, config.keep_alive), (Nanos::from_millis(10), None));
        assert_eq!(config.ack_segments, 1);
        assert_eq!((config.hop_limit, config.is_nodelay, config.has_timestamps), (64, false, true));
    }

    #[test]
    fn a_user_timeout_of_zero_is_the_default() {
        let of = |config: Config, timeout| config.with(Setting::UserTimeout(timeout));
        let short = of(Config::default(), Nanos::from_secs(5));
        assert_eq!(short.user_timeout, Nanos::from_secs(5));
        assert_eq!(of(short, Nanos::ZERO), Config::default());
    }

    #[test]
    fn values_in_range_stay() {
        let config = Config { hop_limit: 1, mtu_bytes: 9000, ..Config::default() };
        assert_eq!(config.bounded(true), config);
    }
}
