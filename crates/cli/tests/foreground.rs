//! Only the foreground job of a terminal shows live progress: a job in the background would write over
//! another program's prompt.

mod network;

use network::Network;

/// What begins a line anew.
const ANEW: &str = "\r\x1b[K";
/// Buffers take two seconds of it; the rest takes four times what passes before progress is shown.
const CONTRACT: [&str; 6] = ["--rate", "50/s", "--size", "1KB", "--deadline", "2s"];
const LINES: usize = 200;

/// Sends [`LINES`] lines in a terminal of its own, with `before` and `behind` around the command; returns the
/// terminal's output.
fn shown(network: &Network, before: &str, behind: &str) -> String {
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let lines = network.directory.join("lines");
    std::fs::write(&lines, "a line\n".repeat(LINES)).expect("a file");
    let (contract, lines) = (CONTRACT.join(" "), lines.display());
    let send = format!("\"$PUNCTUAL\" send cam@b {contract} --split lines < '{lines}'");
    let shown = network.a.in_terminal(&format!("{before} {send} {behind}"));
    receiver.await_output("a line\n".repeat(LINES).as_bytes());
    receiver.end().done();
    network.b.await_no_channels();
    shown
}

#[test]
fn progress_is_shown_in_the_foreground_only() {
    let network = Network::start();
    let summary = format!("{LINES} messages");
    let foreground = shown(&network, "", "");
    assert!(foreground.contains(ANEW) && foreground.contains("queued"), "{foreground:?}");
    assert!(foreground.contains(&summary), "{foreground:?}");
    // A shell with jobs gives each a process group; the terminal stays the shell's own.
    let background = shown(&network, "set -m;", "& wait $!");
    assert!(!background.contains(ANEW) && !background.contains("queued"), "{background:?}");
    assert!(background.contains(&summary), "{background:?}");
}
