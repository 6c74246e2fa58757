//! A handler of a program that is another process than its daemon (RTU 5.1): the daemon's processor wakes a thread of this
//! process in each period, at the priority that the host maps the period to, and calls it again when it has reported.
//!
//!     cargo run -p punctual --example upcall -- [PERIOD_MS]

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use punctual::rtu::{Class, Cost, Progress, Terms};
use punctual::{Endsystem, Nanos};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let period_ms: u64 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let period = Nanos::from_millis(period_ms);
    let host = Endsystem::connect()?;
    let terms = Terms {
        class: Class::periodic(period, 1),
        deadline: None,
        quantum: 1,
        cost: Cost { run: Nanos::ZERO, unit: Nanos::from_micros(100) },
    };
    let (sender, receiver) = channel();
    let handler = host.register(terms, move |units| {
        // An error means that the receiver is gone and the program is about to end.
        let _ = sender.send(Instant::now());
        Progress { units, more: true }
    })?;
    println!(
        "woken within {:?} of each period's begin, priority {:?}",
        handler.grant().bound,
        handler.priority()
    );
    handler.make_ready()?;
    let mut last: Option<Instant> = None;
    for _ in 0..100 {
        let at = receiver.recv_timeout(Duration::from_secs(5))?;
        if let Some(last) = last.replace(at) {
            println!("{:?}", at - last);
        }
    }
    println!("{:?}", handler.status()?.counters);
    Ok(())
}
