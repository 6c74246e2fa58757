//! Texts about lateness on a host, for every verb that reports it.

use punctual::{BrokenStage, HostStatus, Lateness, LinkStatus, NodeStatus, WakeRecord};

/// Whether the daemon runs without a real-time class.
pub fn is_best_effort_host(status: &HostStatus) -> bool {
    status.engine.best_effort_host
}

/// The counters of a broken stage since this host's start, if this host has them: for its own processor, and
/// for links that come in here.
pub fn counted_late(node: &NodeStatus, stage: &BrokenStage) -> String {
    let late = match &stage.towards {
        None if stage.host == node.name.as_str() => Some(node.late_service),
        Some(towards) if towards == node.name.as_str() => {
            let link = node.links.iter().find(|link| link.neighbour_name == stage.host);
            link.map(late_over)
        }
        _ => None,
    };
    match late {
        Some(Lateness { times, by_max }) if times > 0 => {
            format!("; {times} times since the start, up to {by_max}")
        }
        _ => String::new(),
    }
}

/// A warning if too many wake-ups come later than admission assumes.
pub fn late_wakes(wakes: &WakeRecord) -> Option<String> {
    let WakeRecord { recent, recent_late, release_latency, late_max, .. } = wakes;
    wakes.at_risk.then(|| {
        format!(
            "{recent_late} of the last {recent} wake-ups were later than the release latency of \
             {release_latency} with which admission calculates, the latest of all by {late_max}"
        )
    })
}

/// The packets that came in late over a link: signalling, which cannot be forged, and packets of channels.
pub fn late_over(link: &LinkStatus) -> Lateness {
    let (signals, packets) = (link.late_signals, link.late_packets);
    Lateness { times: signals.times + packets.times, by_max: signals.by_max.max(packets.by_max) }
}

#[cfg(test)]
mod tests {
    use punctual::{BusyRecord, Cause, DropCounters, Nanos};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_start_of_counting_is_shown_beside_a_stage_that_this_host_watches() {
        let late = |times, millis| json!({ "times": times, "by_max": Nanos::from_millis(millis) });
        let link = json!({
            "link": 0, "name": "left", "neighbour": 2, "neighbour_name": "a", "alive": true, "clock_offset_ns": null,
            "round_trip_min": null, "utilisation": 0, "packets_guaranteed": 0, "packets_best_effort": 0,
            "packets_signalling": 0, "wire_bytes": 0, "best_effort_dropped": 0,
            "late_signals": late(9, 12), "late_packets": late(2_460, 303),
        });
        let node = json!({
            "id": 1, "name": "b", "channels": 0, "channels_soft": 0, "cpu_utilisation": 0, "buffer_bytes": 0,
            "links": [link], "drops": DropCounters::default(), "overruns": 0, "work": [], "busy": BusyRecord::default(),
            "wakes": WakeRecord::default(), "late_service": late(7, 5), "retransmissions": 0, "now": 0,
        });
        let node: NodeStatus = serde_json::from_value(node).expect("a node's status");
        let counted = |host: &str, towards: Option<&str>| {
            let late = Lateness { times: 3, by_max: Nanos::from_millis(1) };
            let (host, towards) = (host.to_owned(), towards.map(str::to_owned));
            counted_late(
                &node,
                &BrokenStage { host, towards, late, cause: Cause::LongerTravel, channels: None },
            )
        };
        assert_eq!(counted("a", Some("b")), "; 2469 times since the start, up to 303.00 ms");
        assert_eq!(counted("b", None), "; 7 times since the start, up to 5000.0 us");
        assert_eq!(counted("b", Some("a")), "", "the other host counts that");
        assert_eq!(counted("a", None), "");
    }

    #[test]
    fn wake_ups_are_called_out_where_a_sizeable_part_is_late() {
        let release_latency = Nanos::from_micros(200);
        let wakes = WakeRecord {
            wakes: 308,
            late: 308,
            late_max: Nanos::from_millis(225),
            recent: 308,
            recent_late: 308,
            release_latency,
            at_risk: true,
        };
        let printed = late_wakes(&wakes).expect("they are late");
        assert!(printed.starts_with("308 of the last 308 wake-ups were later"), "{printed}");
        assert!(printed.contains("the latest of all by 225.00 ms"), "{printed}");
        assert_eq!(late_wakes(&WakeRecord { at_risk: false, ..wakes }), None);
    }
}
