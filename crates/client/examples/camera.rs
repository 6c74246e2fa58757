//! A camera and its viewer, each on a host of its own. Here both hosts are endsystems in this process, joined by a
//! memory link.
//!
//! Run it with `cargo run -p punctual --example camera`. To use daemons instead, call `Endsystem::connect()` in place of
//! `host(..)`. Nothing else changes.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::config::parse;
use punctual::{ChannelRefusal, Consent, Contract, Endsystem, Nanos, OpenError, Rate};
use punctual_link::{MemoryLink, MemoryOptions};

const FRAME_BYTES_MAX: u32 = 110_000;
const FRAMES: u64 = 50;

/// An endsystem with one link. It runs without a real-time class, so that every user can run this example.
/// Leave `best_effort_host` out to make its promises guarantees.
fn host(name: &str, neighbour: &str, link: MemoryLink) -> Result<Endsystem, Box<dyn Error>> {
    let text = format!(
        r#"
        node.name = "{name}"
        processor.best_effort_host = true
        signalling.key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        link = [{{ name = "l", neighbour = "{neighbour}", driver = "memory", rate = "100Mbit/s" }}]
        "#
    );
    Ok(Endsystem::embedded_with(&parse(&text, Path::new("camera.toml"))?, vec![Box::new(link)])?)
}

/// Opens a channel with the contract `wish`. If the network refuses and offers another contract, takes the offer.
fn open(host: &Endsystem, requested: Contract) -> Result<punctual::Channel, OpenError> {
    let error = match host.open("cam@b", requested) {
        Err(error) => error,
        opened => return opened,
    };
    println!("no: {error}");
    match error {
        OpenError::Refused { refusal: ChannelRefusal { offer: Some(offer), .. }, .. } => {
            println!("taking the offer: within {}", offer.deadline);
            host.open("cam@b", offer)
        }
        error => Err(error),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (to_b, to_a) = MemoryLink::pair(MemoryOptions::default())?;
    let (a, b) = (host("a", "b", to_b)?, host("b", "a", to_a)?);
    // Wait for the first HELLO of each neighbour: before that no host can be reached.
    let until = Instant::now() + Duration::from_secs(10);
    while !(a.status()?.node.links[0].alive && b.status()?.node.links[0].alive) {
        if Instant::now() > until {
            return Err("the hosts never saw one another".into());
        }
        std::thread::yield_now();
    }

    // The viewer, on host b, accepts channels from host a only.
    let listener = b.listen("cam", |request| match request.from.as_str() {
        "a" => Consent::Accept,
        other => Consent::refuse(format!("{other} may not look")),
    })?;

    // The camera, on host a: 25 frames a second, each at most 110 KB. The deadline of 2 ms is too short for a 100 Mbit/s
    // link, so the network refuses it and offers another.
    let rate = Rate::per_second(25).ok_or("no rate")?;
    let mut camera = open(&a, Contract::new(FRAME_BYTES_MAX, rate, 1, Nanos::from_millis(2))?)?;
    let mut viewer = listener.accept()?;
    let sending = std::thread::spawn(move || {
        for number in 0..FRAMES {
            // The frame is made where the link will read it. The call waits while the contract's rate is used up.
            camera.send_in_place(|frame| {
                frame.fill(number as u8);
                frame.len()
            })?;
        }
        camera.flush(Duration::from_secs(10))?;
        Ok::<_, punctual::SendError>(camera)
    });

    // The viewer reads each frame where it arrived, without a copy.
    for _ in 0..FRAMES {
        viewer.recv_in_place(|frame, info| {
            assert!(frame.iter().all(|byte| u64::from(*byte) == info.number), "a frame was changed");
        })?;
    }
    let camera = sending.join().map_err(|_| "the camera failed")??;
    let (sent, seen) = (camera.state()?, viewer.state()?);
    println!("promised: within {}; observed at most {}", seen.promised, seen.observed_max);
    println!("{} frames seen, {} late", seen.status.counters.messages_out, seen.misses);
    println!("{} frames were ready earlier than the jitter allowance and waited at the source", sent.policed);
    camera.close()?;
    Ok(())
}
