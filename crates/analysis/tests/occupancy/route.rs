//! A channel's route, message by message, in parts of its interval: logical, nominal and effective arrivals
//! as in ARCHITECTURE, and every choice of the sender, the stages and propagation. It shares no code with the
//! formulas.

/// I in parts; l lie 255 of them apart (I less 1/256), I' is 254 (I less 1/128).
pub const INTERVAL: i64 = 256;
const SPACING: i64 = 255;
pub const POLICED: i64 = 254;

/// The connection between two hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    pub propagation_min: i64,
    pub propagation_max: i64,
    /// How far the receive time may lie beyond what slack predicts.
    pub error: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub bound: i64,
    /// The connection before it; `None` if it is in the same host as the previous stage.
    pub hop: Option<Hop>,
}

#[derive(Clone, Debug)]
pub struct Route {
    pub burst: i64,
    /// a.
    pub allowance: i64,
    /// Each stage holds to e.
    pub regulated: bool,
    pub stages: Vec<Stage>,
}

/// The choices for a message.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Parts that its sender waits beyond the first time that the contract allows.
    pub pause: i64,
    /// Where between its earliest and its latest time each stage serves it, in percent.
    pub served: Vec<i64>,
    /// The position of the time to each stage in its range, in the same way.
    pub passed: Vec<i64>,
}

/// The times at which a message reached and left each stage.
#[derive(Clone, Debug)]
pub struct Passage {
    pub sent: i64,
    pub came: Vec<i64>,
    pub left: Vec<i64>,
    /// When a sink that holds to the deadline hands it over, less D.
    pub held_from: i64,
}

impl Route {
    /// J of stage `index`.
    pub fn error(&self, index: usize) -> i64 {
        let hops = self.stages[..=index].iter().filter_map(|stage| stage.hop);
        hops.map(|hop| hop.error + hop.propagation_max - hop.propagation_min).sum()
    }

    /// The largest sum of all stages and wires before `index`.
    pub fn upstream(&self, index: usize) -> i64 {
        let bounds: i64 = self.stages[..index].iter().map(|stage| stage.bound).sum();
        let hops = self.stages[..=index].iter().filter_map(|stage| stage.hop);
        bounds + hops.map(|hop| hop.propagation_max).sum::<i64>()
    }

    /// h of stage `index`.
    pub fn horizon(&self, index: usize) -> i64 {
        if self.regulated { 0 } else { self.allowance + self.upstream(index) }
    }

    /// The first time at or after `earliest` at which the contract allows one more message: in any time t at most
    /// B + R·(t + a).
    fn may_send(&self, sent: &[i64], earliest: i64) -> i64 {
        let beside = |(index, at): (usize, &i64)| {
            let count = (sent.len() - index + 1) as i64;
            at + (count - self.burst) * INTERVAL - self.allowance
        };
        sent.iter().enumerate().map(beside).max().unwrap_or(earliest).max(earliest)
    }

    /// Sends the messages; what honest hosts would demote is an error.
    pub fn run(&self, choices: &[Choice]) -> Result<Vec<Passage>, String> {
        let (mut sent, mut logical_next) = (Vec::new(), i64::MIN / 2);
        // For the previous message: e of each stage, and its departure.
        let mut before: Option<(Vec<i64>, Vec<i64>)> = None;
        let mut passages = Vec::new();
        for choice in choices {
            let earliest = sent.last().copied().unwrap_or(0);
            let at = self.may_send(&sent, earliest) + choice.pause;
            sent.push(at);
            let logical = at.max(logical_next);
            logical_next = logical + SPACING;
            let (passage, effective) = self.pass(at, logical, choice, before.as_ref())?;
            before = Some((effective, passage.left.clone()));
            passages.push(passage);
        }
        Ok(passages)
    }

    /// One message through all stages; its e at each.
    fn pass(
        &self,
        sent: i64,
        logical: i64,
        choice: &Choice,
        before: Option<&(Vec<i64>, Vec<i64>)>,
    ) -> Result<(Passage, Vec<i64>), String> {
        let (mut came, mut left, mut effective) = (Vec::new(), Vec::new(), Vec::new());
        let (mut nominal, mut reached) = (logical, sent);
        for (index, stage) in self.stages.iter().enumerate() {
            if index > 0 {
                nominal += self.stages[index - 1].bound;
            }
            if let Some(hop) = stage.hop {
                let range = hop.propagation_max + hop.error - hop.propagation_min;
                let took = hop.propagation_min + range * choice.passed[index] / 100;
                // Slack is what was left of the bound before; the receive time is added to it.
                (nominal, reached) = (nominal + took, reached + took);
            }
            let arrived = nominal.max(reached);
            let chain = before.map_or(i64::MIN, |(effective, _)| effective[index] + POLICED);
            let error = self.error(index);
            if stage.hop.is_some() && (reached > nominal + error || chain > arrived + error) {
                return Err(format!("an honest message is demoted at stage {index}"));
            }
            let own = if index == 0 { logical } else { arrived.max(chain) };
            let first =
                reached.max(own - self.horizon(index)).max(before.map_or(i64::MIN, |(_, left)| left[index]));
            let last = own + stage.bound;
            if first > last {
                return Err(format!("stage {index} cannot keep its bound"));
            }
            let served = first + (last - first) * choice.served[index] / 100;
            came.push(reached);
            left.push(served);
            effective.push(own);
            reached = served;
        }
        let held_from = nominal - self.upstream(self.stages.len() - 1);
        Ok((Passage { sent, came, left, held_from }, effective))
    }
}

/// The largest number of messages that are between two of their times at once; a message that leaves at the
/// instant at which another arrives is not counted.
pub fn most(spans: impl Iterator<Item = (i64, i64)>) -> u64 {
    let spans: Vec<_> = spans.collect();
    let at = |(now, _): &(i64, i64)| spans.iter().filter(|(from, to)| from <= now && now < to).count() as u64;
    spans.iter().map(at).max().unwrap_or(0)
}
