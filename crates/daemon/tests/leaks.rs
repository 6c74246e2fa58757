//! Channels come and go and leave no descriptor behind. Alone in its program, which is counted: clients and daemons are both
//! of this process.

mod common;

use common::{PATIENCE, Pair, contract, eventually};
use punctual::Consent;

#[test]
fn nothing_leaks() {
    let pair = Pair::start();
    let (a, b) = (pair.a.connect(), pair.b.connect());
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let round = || {
        let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
        let channel = a.open("cam@b", contract(100, 10, 200)).expect("a channel");
        let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        let flow = a.best_effort("bulk@b", 100).expect("a flow");
        drop((channel, receiver, flow, listener));
        eventually("all is given back", || {
            [&a, &b].iter().all(|host| {
                let status = host.status().expect("status");
                status.node.channels == 0
                    && status.users.iter().all(|user| user.channels + user.buffer_bytes == 0)
                    && status.audit.is_some_and(|audit| audit.wrong.is_empty() && audit.waiting.is_empty())
            })
        });
    };
    // The first round allocates what stays allocated.
    round();
    let compared = a.status().expect("status").audit.map(|audit| audit.compared);
    assert!(compared.is_some_and(|compared| compared > 40), "{compared:?}");
    let before = descriptors();
    for _ in 0..33 {
        round();
    }
    // Daemons close theirs after they have answered.
    eventually("as many descriptors as before", || descriptors() <= before);
}
