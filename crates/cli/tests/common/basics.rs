//! The begin of configurations that tests of two hosts use.

/// What every configuration of `name`, `a` or `b`, begins with: names, the key, and costs instead of measured ones.
pub fn basics(name: &str, best_effort_host: bool) -> String {
    format!(
        r#"
        node.name = "{name}"
        processor.best_effort_host = {best_effort_host}
        processor.profile_measure = false
        processor.costs = {{ send_message = "1us", send_packet = "1us", send_packet_later = "1us", forward_packet = "1us",
                             receive_packet = "1us", deliver_message = "1us", copy_kib = "200ns", cold_start = "20us" }}
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        "#
    )
}
