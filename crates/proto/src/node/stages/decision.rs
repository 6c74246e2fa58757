//! Where the policies answer: at once, or in another thread while packets continue.
//!
//! Invariants: a question is answered once, in the order of the questions; a reservation of the policies
//! enters `held` when its answer is taken, and not before.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::policies::{self, Offered, Question, Relaxed};
use super::{Policies, Stages};
use crate::api::RefuseCause;
use crate::ids::ChannelId;
use crate::limits::DECISIONS_AT_ONCE_MAX;
use crate::signalling::{Answer, CommitTerms, LocalChannel};

/// Questions for admission, with all data that is needed to answer them: a value that any thread can process.
#[derive(Debug)]
pub struct Decision {
    policies: Policies,
    questions: Vec<Question>,
}

/// The answers, and the policies, which return to their node.
#[derive(Debug)]
pub struct Decided {
    policies: Policies,
    answers: Vec<policies::Answer>,
    took: Vec<(ChannelId, Nanos)>,
}

impl Decision {
    /// Answers the questions. With thousands of channels a question may take milliseconds. `clock` is read
    /// before and after each question.
    pub fn decide(self, mut clock: impl FnMut() -> Instant) -> Decided {
        let Self { mut policies, questions } = self;
        let (mut answers, mut took) = (Vec::with_capacity(questions.len()), Vec::new());
        let mut begun = clock();
        for question in questions {
            let channel = question.channel();
            answers.push(policies.answer(question));
            let done = clock();
            took.extend(channel.map(|channel| (channel, done.since(begun))));
            begun = done;
        }
        Decided { policies, answers, took }
    }
}

impl Decided {
    /// The channel and the duration of each answer.
    pub fn took(&self) -> &[(ChannelId, Nanos)] {
        &self.took
    }
}

impl Stages {
    /// From now on the caller of [`Self::poll_decision`] answers the questions.
    pub const fn decide_elsewhere(&mut self) {
        self.asking.elsewhere = true;
    }

    pub(super) fn put(&mut self, question: Question) {
        self.asking.questions.push_back(question);
        let at_once = if self.asking.elsewhere { None } else { self.poll_decision() };
        if let Some(decision) = at_once {
            self.handle_decided(decision.decide(|| Instant::ZERO));
        }
    }

    /// The next questions, at most [`DECISIONS_AT_ONCE_MAX`], because the processor applies their answers in
    /// one go. `None` while the policies are away.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        if self.asking.questions.is_empty() {
            return None;
        }
        let policies = self.asking.policies.take()?;
        let count = self.asking.questions.len().min(DECISIONS_AT_ONCE_MAX);
        Some(Decision { policies, questions: self.asking.questions.drain(..count).collect() })
    }

    /// Takes the policies and their answers back.
    pub fn handle_decided(&mut self, decided: Decided) {
        let Decided { policies, answers, .. } = decided;
        self.put_back(policies);
        for answer in answers {
            match answer {
                policies::Answer::Held(local, answer) => self.note_held(&local, answer),
                policies::Answer::Relaxed(channel, relaxed) => self.note_relaxed(channel, relaxed),
                policies::Answer::Tried(local, tried) => self.note_tried(local, tried),
                policies::Answer::Released => {}
                policies::Answer::Rtu(id, answer) => self.note_rtu(id, answer),
                policies::Answer::RtuReleased(id) => {
                    self.rtus.remove(&id);
                }
            }
        }
    }

    pub(super) fn put_back(&mut self, mut policies: Policies) {
        for (link, policy) in self.asking.replaced.drain(..) {
            policies.links[usize::from(link.0)] = policy;
        }
        self.asking.policies = Some(policies);
        self.note_utilisation();
    }

    pub(super) fn note_utilisation(&mut self) {
        let Some(policies) = &self.asking.policies else { return };
        self.cpu.utilisation = policies.cpu.utilisation();
        for (stage, policy) in self.links.iter_mut().zip(&policies.links) {
            stage.utilisation = policy.utilisation();
        }
    }

    fn note_held(&mut self, local: &LocalChannel, answer: Result<Offered, RefuseCause>) {
        match &answer {
            Ok(offered) if !offered.dry => {
                let link = offered.link.as_ref().map(|(link, stage, ..)| (*link, stage));
                self.insert(local.channel, &offered.cpu, link);
            }
            Ok(_) => {}
            Err(_) => self.give_up_plan(local.channel),
        }
        let grants = answer.map(|offered| self.offered(local, &offered));
        self.asking.answers.push_back(Answer::Held(local.channel, grants));
    }

    /// Releases the planned flow of a channel that was refused.
    fn give_up_plan(&mut self, channel: ChannelId) {
        let is_held = self.held.get(channel).is_some();
        if let Some(planned) = self.plan.iter_mut().find(|flow| flow.taken == Some(channel) && !is_held) {
            planned.taken = None;
        }
    }

    /// Notes the bounds of a channel that can be made final. No effect if the channel was released meanwhile.
    fn note_relaxed(&mut self, channel: ChannelId, relaxed: Relaxed) {
        let Some(held) = self.held.get_mut(channel) else { return };
        let link = relaxed.link.as_ref();
        held.set_bounds(relaxed.cpu.bound, link.map(|stage| stage.bound));
        held.set_early(relaxed.cpu.demand.early, link.map_or(Nanos::ZERO, |stage| stage.demand.early));
        self.asking.answers.push_back(Answer::Final(channel));
        self.asking.relaxed.push((channel, relaxed));
    }

    fn note_tried(
        &mut self,
        local: Arc<LocalChannel>,
        tried: Result<Box<(Relaxed, CommitTerms)>, RefuseCause>,
    ) {
        let channel = local.channel;
        let answer = tried.map(|tried| {
            let (relaxed, terms) = *tried;
            self.asking.tried.push((local, relaxed, terms));
            Vec::new()
        });
        self.asking.answers.push_back(Answer::Tried(channel, answer));
    }

    /// The reservation of a channel whose answer ([`Answer::Tried`]) is taken now, and its terms.
    pub fn take_tried(&mut self, channel: ChannelId) -> Option<(Arc<LocalChannel>, Relaxed, CommitTerms)> {
        let index = self.asking.tried.iter().position(|(local, ..)| local.channel == channel)?;
        Some(self.asking.tried.remove(index))
    }

    /// The next answer of the stages, in the order of the questions.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.asking.answers.pop_front()
    }

    /// The final bounds of a channel that can be made final: once, and `None` if the channel was released
    /// since.
    pub fn take_relaxed(&mut self, channel: ChannelId) -> Option<Relaxed> {
        let index = self.asking.relaxed.iter().position(|(of, _)| *of == channel)?;
        Some(self.asking.relaxed.swap_remove(index).1)
    }

    /// Whether a question has no answer yet.
    pub fn is_asked(&self) -> bool {
        self.asking.policies.is_none() || !self.asking.questions.is_empty() || !self.asking.answers.is_empty()
    }
}
