//! Each mistake in a file gives one line that names the file, the line and the fix.

use super::{KEY, MEMORY, read, small};

/// A file with a mistake, the line that is named, and words of the message.
type Mistake = (String, usize, &'static str);

const UDP: &str = "driver = \"udp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"";
const XDP: &str = "driver = \"xdp\"\nlocal = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"v\"";

/// Section `[processor]`.
fn of_the_processor() -> Vec<Mistake> {
    vec![
        (small("prioritty = 3", MEMORY, ""), 4, "prioritty"),
        (small("policy = \"edf\"\nadmission = \"fixed-priority\"", MEMORY, ""), 3, "does not match policy"),
        (small("policy = \"lottery\"", MEMORY, ""), 4, "lottery"),
        (small("priority = 99", MEMORY, ""), 3, "1 to 97"),
        (small("priority = 9\nbest_effort_host = true", MEMORY, ""), 3, "exclude each other: leave one out"),
        (small("release_latency = 200", MEMORY, ""), 4, "10ms"),
        (small("release_latency = \"200\"", MEMORY, ""), 4, "10ms"),
        (small("prioritty = 3", MEMORY, ""), 4, "unknown key `prioritty`: did you mean `priority`?"),
        (small("costs = { send_packet = 3 }", MEMORY, ""), 4, "send_packet: "),
        (small("quantum = 0", MEMORY, ""), 3, "[processor] quantum = 0: give"),
        (small("cpu_share_max = \"0%\"", MEMORY, ""), 3, "[processor] cpu_share_max is nothing: give"),
        (
            small("best_effort_share_min = \"99%\"", MEMORY, ""),
            3,
            "best_effort_share_min leaves channels nothing",
        ),
        (
            small("deadline_period = \"1ms\"", MEMORY, ""),
            3,
            "deadline_period is for class = \"deadline\": leave it out",
        ),
    ]
}

/// What a driver of a link does not take.
fn of_drivers() -> Vec<Mistake> {
    let second = format!("\n[[link]]\nname = \"m\"\nneighbour = \"b\"\nrate = \"1Gbit/s\"\n{XDP}\n");
    vec![
        (small("", "driver = \"udp\"", ""), 13, "local and peer"),
        (small("", "driver = \"memory\"\ndata_port = 4", ""), 13, "has no addresses"),
        (small("", "driver = \"memory\"\nadmission = \"fifo\"", ""), 13, "edf, d-order or"),
        (
            small("", &UDP.replace("10.0.0.1", "eth0"), ""),
            18,
            "local: \"eth0\" is no IP address: give the host's on that link, as \"10.0.0.1\"",
        ),
        (small("", &XDP.replace("10.0.0.2", "eth0"), ""), 19, "peer: \"eth0\" is no IP address"),
        (small("", UDP, "device = 3"), 20, "string"),
        (small("", UDP, "queue = 0"), 13, "queue: only for driver \"xdp\""),
        (small("", &UDP.replace("udp", "xdp"), ""), 13, "needs device"),
        (small("", XDP, "packet = \"9000B\""), 13, "at most 3776 B"),
        (small("", XDP, "napi_priority = 99"), 13, "1 to 98"),
        (small("", XDP, "socket_priority = 1"), 13, "driver \"udp\""),
        (small("", XDP, "kernel_rate = \"100%\""), 13, "all of the link"),
        (small("", XDP, "kernel_rate = \"10\""), 21, "10Mbit/s"),
        (small("", XDP, "kernel_rate_max = \"50%\""), 13, "without kernel_rate"),
        (small("", XDP, "kernel_rate = \"10%\"\nkernel_rate_max = \"5%\""), 13, "less than kernel_rate"),
        (
            small("", XDP, "kernel_rate = \"10%\"\nkernel_rate_max = \"50%\"\npace = \"completion\""),
            13,
            "leave it out",
        ),
        (small("", XDP, "kernel_rate = \"10%\"\ninterference_share = \"5%\""), 13, "leave it out"),
        (
            small("", XDP, "kernel_rate = \"10%\"\nkernel_rate_max = \"99%\""),
            13,
            "give at most 95% of the rate",
        ),
        (
            small("", UDP, "kernel_rate_max = \"50%\""),
            13,
            "kernel_rate_max: only for driver \"xdp\"; on a udp link",
        ),
        (
            small("", UDP, "kernel_traffic = \"shaped\"\nkernel_rate = \"10%\"\nkernel_rate_max = \"50%\""),
            13,
            "kernel_rate: only for driver \"xdp\"; here kernel_traffic = \"shaped\" is enough",
        ),
        (small("", &XDP.replace("10.0.0.2", "::1"), ""), 13, "one family"),
        (small("", XDP, &second), 22, "a device for each"),
        (small("", UDP, "device = 3"), 20, "device: "),
        (small("", "driver = \"memory\"\ndata_port = 4", ""), 13, "data_port: driver \"memory\""),
        (small("", &UDP.replace("10.0.0.2", "10.0.0.1"), ""), 13, "give the address of b"),
        (
            small("", &XDP.replace("10.0.0.2", "10.0.0.1"), "peer_data_port = 1\npeer_signalling_port = 2"),
            13,
            "this host itself",
        ),
        (small("", &UDP.replace("10.0.0.2", "0.0.0.0"), ""), 13, "peer 0.0.0.0 is not the address of a host"),
        (small("", &UDP.replace("10.0.0.2", "::1"), ""), 13, "one family"),
        (small("", UDP, "data_port = 7412"), 13, "data_port and signalling_port are both 7412: give two"),
        (small("", UDP, "peer_data_port = 0"), 13, "peer_data_port 0: give 1"),
        (small("", UDP, "[daemon]\nsocket_mode = \"rw\""), 20, "socket_mode \"rw\": write"),
        (
            small("", XDP, "kernel_rate = \"10%\"\ninterference_burst = \"1000s\""),
            13,
            "interference_burst is too long: give less",
        ),
        (small("", XDP, "packet = \"5GiB\""), 13, "packet of 5368709120 B is too large: give less"),
    ]
}

/// Keys and sections that are misspelt, missing or there twice.
fn of_keys() -> Vec<Mistake> {
    vec![
        (small("", MEMORY, "neighbor = \"b\""), 18, "unknown key `neighbor`: did you mean `neighbour`?"),
        (
            small("", MEMORY, "colour = 1"),
            18,
            "unknown key `colour`: leave it out; docs/punctuald.example.toml",
        ),
        (
            small("", MEMORY, "").replace("[[link]]", "[[links]]"),
            13,
            "unknown key `links`: did you mean `link`?",
        ),
        (
            small("", MEMORY, "").replace("[[link]]", "[link]"),
            13,
            "[link]: a file may have several of these: write [[link]]",
        ),
        (
            small("", MEMORY, "[route]\nvia = [\"b\"]"),
            18,
            "[route]: a file may have several of these: write [[route]]",
        ),
        (
            small("", MEMORY, "").replace("[node]", "[[node]]"),
            1,
            "[[node]]: a file has one of these: write [node]",
        ),
        (
            small("", MEMORY, "").split("[[link]]").next().unwrap_or_default().to_owned(),
            1,
            "no [[link]] leads to a neighbour: add one for each, with name, neighbour, driver, local, peer and rate",
        ),
        (small("", MEMORY, "").replace("rate = \"1Gbit/s\"", ""), 13, "missing field `rate`: add it"),
        (small("", MEMORY, "rate = \"1Gbit/s\""), 18, "rate: duplicate key: remove one"),
        (
            small("", MEMORY, "[[host]]\nname = \"c\"\nid = 3\n[[route]]\nvia = [\"c\"]"),
            21,
            "no [[link]] leads to: name a neighbour",
        ),
        (small("", MEMORY, "").replace(&format!("key = \"{KEY}\""), ""), 5, "key, key_file: give one"),
    ]
}

/// Hosts, routes and neighbours.
fn of_hosts_and_routes() -> Vec<Mistake> {
    vec![
        (small("", MEMORY, "[[route]]\nvia = [\"c\"]"), 18, "\"c\" is not in the directory"),
        (small("", MEMORY, "[[route]]\nvia = []"), 18, "via is empty"),
        (small("", MEMORY, "[[host]]\nname = \"c\"\nid = 2"), 18, "the id 2 of \"b\""),
        (small("", MEMORY, "[[host]]\nname = \"b\"\nid = 3"), 18, "is listed twice"),
        (small("", MEMORY, "").replace("name = \"a\"\n[proc", "name = \"z\"\n[proc"), 1, "has no [[host]]"),
        (
            small("", MEMORY, "").replace("neighbour = \"b\"", "neighbour = \"a\""),
            13,
            "neighbour is this host: name",
        ),
        (small("", MEMORY, "[[route]]\nvia = [\"b\", \"b\"]"), 18, "via passes a host twice: leave"),
        (small("", MEMORY, "[[route]]\nvia = [\"b\", \"a\"]"), 18, "via passes this host: leave"),
        (
            small(
                "",
                MEMORY,
                "[[link]]\nname = \"m\"\nneighbour = \"b\"\nrate = \"1Gbit/s\"\ndriver = \"memory\"",
            ),
            18,
            "link \"l\" leads to neighbour b already: remove one",
        ),
    ]
}

/// Values that are no values, or out of range.
fn of_values() -> Vec<Mistake> {
    vec![
        (small("", MEMORY, "").replace(KEY, "0f"), 5, "64 hexadecimal digits"),
        (small("", MEMORY, "").replace("1Gbit/s", "1 parsec"), 16, "40Mbit/s"),
        (small("", MEMORY, "").replace("1Gbit/s", "1 parsec"), 16, "rate: "),
        (
            small("", MEMORY, "").replace("[signalling]", "[signalling]\nretransmits_max = 0"),
            5,
            "[signalling] retransmits_max = 0: give",
        ),
        (
            small("", MEMORY, "").replace("[signalling]", "[signalling]\nhello = \"1us\""),
            5,
            "[signalling] hello is below a millisecond: give",
        ),
        (small("", MEMORY, "rate_error = \"50%\""), 13, "rate_error is 50 % or more: give"),
        (
            small("", MEMORY, "propagation_min = \"1s\""),
            13,
            "propagation_min is longer than propagation_max: exchange",
        ),
        (small("", MEMORY, "best_effort_cap = \"0%\""), 13, "best_effort_cap is nothing: give"),
        (
            small("", MEMORY, "interference_share = \"100%\""),
            13,
            "interference_share (or kernel_rate) leave channels nothing: give",
        ),
        (small("", MEMORY, "packet = \"500B\""), 13, "packet of 500 B holds neither"),
    ]
}

#[test]
fn mistakes_are_one_line_with_file_line_and_fix() {
    let cases = [of_the_processor(), of_drivers(), of_keys(), of_hosts_and_routes(), of_values()];
    for (text, line, has_message) in cases.into_iter().flatten() {
        let error = read(&text).expect_err(has_message);
        let begins = format!("/etc/host.toml:{line}: ");
        assert!(
            error.starts_with(&begins) && error.contains(has_message) && !error.contains('\n'),
            "{has_message}: {error}\n{text}"
        );
    }
}
