//! The rings between program and daemon by message size, for the rows of CLIPS tables 2 and 3.

use std::hint::black_box;

use punctual::now;
use punctual_engine::profile::Rings;
use punctual_host::profile_rings::SharedRings;
use punctual_os::realtime;
use punctual_proto::memory::{Inbox, MessageInfo, MessageWrite, Outbox};

use super::{Extent, PRIORITY};

/// The paper's sizes.
pub(crate) const SIZES: [(usize, &str); 4] =
    [(1, "1 B"), (1_000, "1 kB"), (10_000, "10 kB"), (30_000, "30 kB")];
const RING_MESSAGES: u32 = 8;

/// One size; in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct SizeRow {
    /// The program puts a message into the ring and rings.
    pub send: Vec<u64>,
    /// The daemon takes it.
    pub take: Vec<u64>,
    /// The daemon makes a message visible and wakes the receiver.
    pub publish: Vec<u64>,
    /// The program takes a message that is waiting and copies it.
    pub receive: Vec<u64>,
    /// The program finds that none is waiting.
    pub none: Vec<u64>,
}

pub(super) fn measure(extent: Extent) -> anyhow::Result<Vec<SizeRow>> {
    let measuring = std::thread::spawn(move || {
        realtime::enter_fifo(PRIORITY, None)?;
        SIZES.iter().map(|(bytes, _)| of_size(*bytes, extent.rounds / 2)).collect()
    });
    measuring.join().map_err(|_| anyhow::anyhow!("measuring the rings failed"))?
}

fn of_size(bytes: usize, rounds: usize) -> anyhow::Result<SizeRow> {
    let rings = SharedRings;
    let (mut outbox, mut writer) = rings.outgoing(RING_MESSAGES, bytes as u32)?;
    let (mut inbox, mut reader) = rings.incoming(RING_MESSAGES, bytes as u32)?;
    let message = vec![0x5a; bytes];
    let mut copied = vec![0; bytes];
    let mut all = SizeRow::default();
    for number in 0..rounds as u64 {
        let begun = now();
        rings.send(&mut writer, &message)?;
        let sent = now();
        let taken = outbox.take(sent);
        let took = now();
        drop(taken);
        let mut slot = inbox.reserve().ok_or_else(|| anyhow::anyhow!("the receiver's ring is full"))?;
        slot.copy_from(0, &message);
        let info = MessageInfo { number, len: bytes as u32, ..MessageInfo::default() };
        let publishing = now();
        inbox.publish(slot, info);
        let published = now();
        let came = reader.take(|bytes, _| copied[..bytes.len()].copy_from_slice(bytes)).is_some();
        let received = now();
        let none = reader.take(|_, _| ()).is_none();
        let looked = now();
        black_box(&copied);
        anyhow::ensure!(came && none, "a ring lost a message");
        all.send.push(sent.since(begun).0);
        all.take.push(took.since(sent).0);
        all.publish.push(published.since(publishing).0);
        all.receive.push(received.since(published).0);
        all.none.push(looked.since(received).0);
    }
    Ok(all)
}
