//! The source with a driver below it, stepped as the engine's processor steps one: a unit, a clock reading, what the link
//! scheduler gives into the driver, another reading, the books; the system calls at the end of the turn or when a packet
//! has waited [`FLUSH_DELAY`]. Time on the channels stays virtual.

use punctual_link::{Link, Port as DriverPort};
use punctual_os::clock::now;
use punctual_proto::api::{PacketOut, Port};
use punctual_proto::{Instant, Nanos};

use super::{LINK, Nodes, SOURCE, URGENT_BYTES, World};
use crate::measure::Sample;

/// The processor's.
const FLUSH_DELAY: Nanos = Nanos::from_micros(20);

/// What one message took.
#[derive(Clone, Copy, Debug)]
pub struct Driven {
    /// Time from the message in its ring to its last packet in the device.
    pub processing: Sample,
    /// Units of work.
    pub units: u32,
    /// Packets handed to the driver.
    pub packets: u32,
}

/// A turn of the source's processor.
struct Turn<'a> {
    nodes: &'a mut Nodes,
    link: &'a mut dyn Link,
    waiting_since: Option<Instant>,
    units: u32,
    packets: u32,
}

impl Nodes {
    /// Processes what was offered, into the driver.
    ///
    /// # Errors
    /// If the driver breaks or is full.
    pub fn drive(&mut self, link: &mut dyn Link) -> anyhow::Result<Driven> {
        let begun = now();
        self.ring();
        let mut turn = Turn { nodes: self, link, waiting_since: None, units: 0, packets: 0 };
        let mut at = begun;
        while turn.unit(&mut at, |_| ())? {}
        turn.flush()?;
        let (units, packets) = (turn.units, turn.packets);
        Ok(Driven { processing: Sample { begun, span: now().since(begun) }, units, packets })
    }

    /// Processes what was offered while an urgent message becomes ready right after the first unit has begun: how long
    /// until the processor begins the urgent unit.
    ///
    /// # Errors
    /// As [`Nodes::drive`], or where the next unit is not the urgent one.
    pub fn urgent_access(&mut self, link: &mut dyn Link) -> anyhow::Result<Sample> {
        self.ring();
        let virtual_now = self.world.now;
        self.urgent.put(virtual_now);
        let mut turn = Turn { nodes: self, link, waiting_since: None, units: 0, packets: 0 };
        let begun = now();
        let mut at = begun;
        // What the processor serves as soon as a unit is over.
        turn.unit(&mut at, |nodes| {
            nodes.world.nodes[SOURCE].handle_ring(nodes.urgent.open.source, nodes.world.now);
        })?;
        let next = turn.nodes.source().begin_work(virtual_now);
        let span = now().since(begun);
        let urgent = next.filter(|work| work.bytes == URGENT_BYTES);
        let urgent =
            urgent.ok_or_else(|| anyhow::anyhow!("the unit after the first is not the urgent one"))?;
        turn.nodes.source().finish_work(urgent, virtual_now);
        turn.transmit(now())?;
        while turn.unit(&mut at, |_| ())? {}
        turn.flush()?;
        Ok(Sample { begun, span })
    }
}

impl Turn<'_> {
    /// One unit of work, if there is any; `after` is done as soon as it is over.
    fn unit(&mut self, at: &mut Instant, after: impl FnOnce(&mut Nodes)) -> anyhow::Result<bool> {
        let virtual_now = self.nodes.world.now;
        let source = self.nodes.source();
        let Some(work) = source.begin_work(virtual_now) else { return Ok(false) };
        let (handler, kind) = (work.handler, work.kind);
        let declared = work.declared_cost(source.costs());
        source.finish_work(work, virtual_now);
        after(self.nodes);
        self.units += 1;
        let worked = now();
        let any = self.transmit(worked)?;
        let done = if any { now() } else { worked };
        self.nodes.source().record_unit(handler, kind, done.since(*at), declared, virtual_now);
        *at = done;
        Ok(true)
    }

    /// What the link scheduler gives goes into the driver's buffers. The device is done at once, as a veth is.
    fn transmit(&mut self, at: Instant) -> anyhow::Result<bool> {
        let World { nodes, now: virtual_now, .. } = &mut self.nodes.world;
        let source = &mut nodes[SOURCE];
        while source.poll_filter().is_some() {}
        let mut any = false;
        loop {
            let Some(buffer) = self.link.transmit_buffer() else {
                self.link.flush()?;
                anyhow::ensure!(self.link.transmit_buffer().is_some(), "the driver is full");
                continue;
            };
            let Some(sent) = source.poll_transmit(LINK, *virtual_now, buffer) else { break };
            let PacketOut::Written(len) = sent.packet else { anyhow::bail!("a source passes nothing on") };
            let port = if sent.port == Port::Data { DriverPort::Data } else { DriverPort::Signalling };
            self.link.transmit(port, len, sent.wire_bytes)?;
            source.handle_sent(LINK, sent.wire_bytes, *virtual_now);
            self.packets += u32::from(sent.port == Port::Data);
            self.waiting_since.get_or_insert(at);
            any = true;
        }
        if self.waiting_since.is_some_and(|since| at.since(since) >= FLUSH_DELAY) {
            self.flush()?;
        }
        Ok(any)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.waiting_since = None;
        Ok(self.link.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use punctual_link::{MemoryLink, MemoryOptions};

    use super::*;

    /// As `harts-preemption` has it.
    const PACKETS: u32 = 32;

    #[test]
    fn every_packet_reaches_the_driver_and_the_urgent_one_waits_for_one_unit() {
        for quantum in [1, 3, 8, PACKETS] {
            let (mut link, mut far) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
            let mut nodes = Nodes::with_quantum(quantum, PACKETS, 1_400).expect("channels");
            for round in 0..20 {
                nodes.offer();
                let driven = nodes.drive(&mut link).expect("a message");
                let units = PACKETS.div_ceil(quantum);
                assert_eq!((driven.packets, driven.units), (PACKETS, units), "quantum {quantum}, {round}");
                nodes.offer();
                nodes.urgent_access(&mut link).expect("the urgent one is next");
                let (mut received, mut came) = (Vec::with_capacity(64), 0);
                while far.receive(&mut received, 64).expect("packets") > 0 {
                    came += received.len() as u32;
                    received.clear();
                }
                assert_eq!(came, 2 * PACKETS + 1, "both messages and the urgent one");
            }
        }
    }
}
