//! The sending half compared with a list of segments and what has happened to each.

use super::*;

const RETRANSMIT: Nanos = Nanos(1_000);
const RETRANSMITS_MAX: u32 = 2;

/// A segment in the reference.
#[derive(Clone, Copy, Default)]
struct Known {
    sent: u32,
    first_at: u64,
    again_at: u64,
    due: bool,
    acknowledged: bool,
}

/// All segments that were ever pushed, from number 0 on.
#[derive(Default)]
struct Model {
    all: Vec<Known>,
}

impl Model {
    /// The first that is not acknowledged, with all before it.
    fn first(&self) -> usize {
        self.all.iter().position(|known| !known.acknowledged).unwrap_or(self.all.len())
    }
    fn window(&mut self) -> &mut [Known] {
        let first = self.first();
        let end = self.all.len().min(first + WINDOW_SEGMENTS);
        &mut self.all[first..end]
    }
    fn due(&mut self) -> Option<u64> {
        let first = self.first() as u64;
        let due = self.window().iter().position(|known| known.due)?;
        Some(first + due as u64)
    }
    fn sent(&mut self, number: u64, now: u64) -> bool {
        let known = &mut self.all[number as usize];
        if known.sent == 0 {
            known.first_at = now;
        }
        known.again_at = now + RETRANSMIT.0 * 2_u64.pow(known.sent.min(5));
        known.sent += 1;
        known.due = false;
        known.sent > 1
    }
    fn acknowledge(&mut self, received: &[u64]) {
        for (number, known) in (0..).zip(&mut self.all) {
            if known.sent > 0 && received.contains(&number) {
                (known.acknowledged, known.due) = (true, false);
            }
        }
    }
    fn handle_timeout(&mut self, now: u64) -> Option<u64> {
        let open = self.window().iter_mut().filter(|known| known.sent > 0 && !known.acknowledged);
        let late = open.filter_map(|known| {
            known.due |= known.again_at <= now;
            (known.due && known.sent > RETRANSMITS_MAX).then_some(known.first_at)
        });
        late.max()
    }
    fn poll_timeout(&mut self) -> Option<u64> {
        let waiting =
            self.window().iter().filter(|known| known.sent > 0 && !known.acknowledged && !known.due);
        waiting.map(|known| known.again_at).min()
    }
}

/// Segments are sent, lost, acknowledged in any order, also by acknowledgements that were overtaken by later
/// ones.
#[test]
fn every_segment_is_sent_and_acknowledged_by_its_number() {
    let (mut again, mut unheard, mut overtaken) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let (mut stream, mut model, mut now) = (SendStream::new(40, RETRANSMIT), Model::default(), 0);
        let (mut received, mut reports) = (Vec::<u64>::new(), Vec::new());
        for _ in 0..700 {
            now += random.below(200);
            match random.below(5) {
                0 if model.all.len() - model.first() < SEGMENTS_MAX - 2 => {
                    stream.push(&[7; 38]).expect("room");
                    model.all.push(Known { due: true, ..Known::default() });
                }
                1 => {
                    let late = stream.handle_timeout(Instant(now), RETRANSMITS_MAX);
                    assert_eq!(late.map(|at| at.0), model.handle_timeout(now), "seed {seed}");
                    unheard += u32::from(late.is_some());
                }
                2 if !reports.is_empty() => {
                    // Any of the last reports.
                    let (report, of): &(Received, Vec<u64>) =
                        &reports[reports.len() - 1 - random.below(reports.len().min(8) as u64) as usize];
                    overtaken += u32::from(report.next < model.first() as u64 && report.later != 0);
                    stream.acknowledge(*report);
                    model.acknowledge(of);
                }
                _ => {
                    let Some(number) = stream.due().map(|(number, _)| number) else { continue };
                    let repeated = stream.sent(number, Instant(now));
                    assert_eq!(repeated, model.sent(number, now), "seed {seed}");
                    again += u32::from(repeated);
                    if random.below(3) > 0 && !received.contains(&number) {
                        received.push(number);
                    }
                    let next = (0..).find(|number| !received.contains(number)).unwrap_or(0);
                    let later = received.iter().filter(|number| **number > next);
                    let later = later.fold(0, |bits, number| bits | 1 << (number - next - 1));
                    reports.push((Received { next, later }, received.clone()));
                }
            }
            assert_eq!(stream.due().map(|(number, _)| number), model.due(), "seed {seed}");
            assert_eq!(stream.has_due(), model.due().is_some(), "seed {seed}");
            assert_eq!(stream.poll_timeout().map(|at| at.0), model.poll_timeout(), "seed {seed}");
            assert_eq!(stream.len(), model.all.len() - model.first(), "seed {seed}");
            let unsent = model.all.iter().rev().take_while(|known| known.sent == 0).count();
            assert_eq!(stream.unsent(), unsent, "seed {seed}");
        }
    }
    assert!(again > 1_000 && unheard > 100 && overtaken > 100, "{again} {unheard} {overtaken}");
}

/// An acknowledgement that was overtaken speaks of 32 segments behind its first missing one, and of no
/// others.
#[test]
fn an_old_acknowledgement_speaks_of_its_own_segments_only() {
    for old in [0, 1, 7, 8] {
        let mut sender = SendStream::new(40, RETRANSMIT);
        (0..60).for_each(|_| sender.push(&[7; 38]).expect("room"));
        let send_all = |sender: &mut SendStream| {
            while let Some(number) = sender.due().map(|(number, _)| number) {
                sender.sent(number, Instant(1));
            }
        };
        send_all(&mut sender);
        sender.acknowledge(Received { next: 8, later: 0 });
        send_all(&mut sender);
        sender.acknowledge(Received { next: old, later: u32::MAX });
        assert_eq!(sender.handle_timeout(Instant(RETRANSMIT.0 + 1), 9), None);
        let again = core::iter::from_fn(|| {
            let number = sender.due().map(|(number, _)| number)?;
            sender.sent(number, Instant(2_000)).then_some(number)
        });
        // Of 8 to 39, which are under way, those whose bit is not there: `old` itself and all from 33 behind
        // it on.
        let expected: Vec<u64> = (8..40).filter(|number| *number == old || *number > old + 32).collect();
        assert_eq!(again.collect::<Vec<_>>(), expected, "{old}");
    }
}
