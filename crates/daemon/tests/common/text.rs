//! Configurations of the two hosts of every test, `a` and `b`.

use std::path::Path;

/// The neighbour of `a` or `b`.
pub fn other(name: &str) -> &'static str {
    if name == "a" { "b" } else { "a" }
}

/// Default interval of HELLOs: a neighbour is considered down after five times as long without one.
pub const HELLO: &str = "250ms";

/// A host's configuration; `processor`, `daemon`, `signalling` and `link` are more lines of these tables.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub name: &'a str,
    pub socket: &'a Path,
    pub processor: &'a str,
    pub daemon: &'a str,
    pub hello: &'a str,
    pub signalling: &'a str,
    pub link: &'a str,
}

impl Text<'_> {
    pub fn to_toml(self) -> String {
        let Self { name, socket, processor, daemon, hello, signalling, link } = self;
        // Ordinary threads on a busy machine may be late by any time. That is not under test, unless the test
        // sets this key.
        let late = if link.contains("prediction_error") { "" } else { "prediction_error = \"500ms\"" };
        // A call that a thread's list does not have ends the daemon, and so the test, unless the test wants otherwise.
        let calls = if daemon.contains("forbidden_calls") { "" } else { "forbidden_calls = \"end\"" };
        format!(
            r#"
            [node]
            name = "{name}"
            [processor]
            {processor}
            [daemon]
            socket = "{socket}"
            {calls}
            {daemon}
            [signalling]
            key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
            hello = "{hello}"
            {signalling}
            [[host]]
            name = "a"
            id = 1
            [[host]]
            name = "b"
            id = 2
            [[link]]
            name = "to-{neighbour}"
            neighbour = "{neighbour}"
            {late}
            {link}
            "#,
            socket = socket.display(),
            neighbour = other(name),
        )
    }
}
