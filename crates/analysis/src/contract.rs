//! Contracts: an application's promise about its traffic, and its requirements of the channel (HARTS 3.1,
//! CLIPS 4.4).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::activation::{Activation, ActivationError, FlowName, Late};
use crate::statistical::{Statistical, StatisticalError};
use crate::units::{Nanos, Rate};

/// Largest message of a channel, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;
/// Largest burst, in messages.
pub const BURST_MESSAGES_MAX: u32 = 1 << 16;
/// Longest deadline and longest interval between messages.
pub const SPAN_MAX: Nanos = Nanos::from_secs(3600);
/// Shortest interval between messages: a million messages a second.
pub const INTERVAL_MIN: Nanos = Nanos(1_000);
/// Longest jitter allowance of a contract that does not state one. It covers the lateness of ordinary timers
/// of busy or virtual machines.
pub const JITTER_DEFAULT_MAX: Nanos = Nanos::from_millis(10);
/// Longest jitter allowance of a contract that does not state one, in intervals between messages. Buffers
/// grow by as many messages (ADR 0029).
pub const JITTER_DEFAULT_INTERVALS: u64 = 10;

/// Handling at the source of a message that breaks the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policing {
    /// The message waits for its logical arrival; the sender blocks or gets `WouldBlock` when the queue is
    /// full.
    #[default]
    Delay,
    /// The message is dropped and counted.
    Drop,
    /// The message travels as best effort.
    Demote,
}

/// When the sink hands a message to the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// The message is handed over as soon as it is complete.
    #[default]
    Asap,
    /// The message is handed over at its deadline l + D, less the wake-up margin. This gives the least
    /// jitter.
    AtDeadline,
}

/// How early a stage may serve ahead of the logical arrival (ARCHITECTURE, Terms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Horizon {
    /// h(k) = sum of the bounds upstream: an early packet is served early. Larger buffers, short latency.
    #[default]
    Cumulative,
    /// h(k) = 0, the papers' setting: every hop holds to the logical arrival. Small buffers, latency near D.
    Regulated,
}

/// Strength of a guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Every message is promised.
    #[default]
    Hard,
    /// All messages are promised except the share that the contract lets miss, or those that are dropped
    /// because they are already late.
    Soft,
    /// Nothing is promised: a host of the route cannot keep its promises.
    Degraded,
}

/// Traffic and requirements: at most `message_bytes_max` a message, `rate_max`, `burst_messages_max`, each
/// within `deadline` of its logical arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contract {
    /// S: 1 to [`MESSAGE_BYTES_MAX`].
    pub message_bytes_max: u32,
    /// R, as its interval I: [`INTERVAL_MIN`] to [`SPAN_MAX`].
    pub rate_max: Rate,
    /// B: 1 to [`BURST_MESSAGES_MAX`].
    pub burst_messages_max: u32,
    /// D, end to end from the logical arrival: up to [`SPAN_MAX`].
    pub deadline: Nanos,
    /// Handling of excess at the source.
    #[serde(default)]
    pub policing: Policing,
    /// When the sink delivers.
    #[serde(default)]
    pub delivery: Delivery,
    /// How early hops may serve ahead of the logical arrival.
    #[serde(default)]
    pub horizon: Horizon,
    /// Activation of the handlers, and their budgets.
    #[serde(default)]
    pub activation: Activation,
    /// Handling of late messages on the route.
    #[serde(default)]
    pub late: Late,
    /// The flow of a host's plan that this channel uses.
    #[serde(default)]
    pub flow: Option<FlowName>,
    /// The mean rate and the permitted miss ratio of a soft guarantee. `None`: the guarantee is hard.
    #[serde(default)]
    pub statistical: Option<Statistical>,
    /// Largest lateness of the sender's timer after which its later messages need not wait: up to
    /// [`SPAN_MAX`]. `None`: the value of [`Contract::jitter_allowance`].
    #[serde(default)]
    pub jitter: Option<Nanos>,
}

/// Why a contract is invalid, with a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ContractError {
    /// S is zero or too large.
    #[error("message size {bytes} B: give 1 B to {MESSAGE_BYTES_MAX} B")]
    MessageBytes {
        /// The requested size.
        bytes: u32,
    },
    /// I is too short or too long.
    #[error("one message every {interval}: give a rate between one an hour and 1000000/s")]
    Interval {
        /// The requested interval.
        interval: Nanos,
    },
    /// B is zero or too large.
    #[error("burst of {messages} messages: give 1 to {BURST_MESSAGES_MAX}")]
    Burst {
        /// The requested burst.
        messages: u32,
    },
    /// D is zero or too long.
    #[error("deadline {deadline}: give more than 0 and at most an hour")]
    Deadline {
        /// The requested deadline.
        deadline: Nanos,
    },
    /// The jitter allowance is too long.
    #[error("jitter allowance {jitter}: give at most an hour")]
    Jitter {
        /// The requested jitter allowance.
        jitter: Nanos,
    },
    /// The activation is out of range.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// Mean rate and miss ratio are out of range.
    #[error(transparent)]
    Statistical(#[from] StatisticalError),
}

impl Contract {
    /// A contract with the defaults for all other fields.
    ///
    /// # Errors
    /// If [`Contract::validate`] refuses it.
    pub fn new(
        message_bytes_max: u32,
        rate_max: Rate,
        burst: u32,
        deadline: Nanos,
    ) -> Result<Self, ContractError> {
        let contract = Self {
            message_bytes_max,
            rate_max,
            burst_messages_max: burst,
            deadline,
            policing: Policing::default(),
            delivery: Delivery::default(),
            horizon: Horizon::default(),
            activation: Activation::default(),
            late: Late::default(),
            flow: None,
            statistical: None,
            jitter: None,
        };
        contract.validate()?;
        Ok(contract)
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn validate(&self) -> Result<(), ContractError> {
        if !(1..=MESSAGE_BYTES_MAX).contains(&self.message_bytes_max) {
            return Err(ContractError::MessageBytes { bytes: self.message_bytes_max });
        }
        let interval = self.rate_max.interval();
        if !(INTERVAL_MIN..=SPAN_MAX).contains(&interval) {
            return Err(ContractError::Interval { interval });
        }
        if !(1..=BURST_MESSAGES_MAX).contains(&self.burst_messages_max) {
            return Err(ContractError::Burst { messages: self.burst_messages_max });
        }
        if self.deadline == Nanos::ZERO || self.deadline > SPAN_MAX {
            return Err(ContractError::Deadline { deadline: self.deadline });
        }
        if let Some(jitter) = self.jitter.filter(|jitter| *jitter > SPAN_MAX) {
            return Err(ContractError::Jitter { jitter });
        }
        self.activation.validate(self.deadline)?;
        if let Some(statistical) = &self.statistical {
            statistical.validate(self)?;
        }
        Ok(())
    }

    /// Strength of the guarantee that this contract requests.
    pub fn guarantee(&self) -> Guarantee {
        let soft = self.statistical.is_some() || self.late == Late::Drop;
        if soft { Guarantee::Soft } else { Guarantee::Hard }
    }

    /// a: how far ahead of its logical arrival a message may be sent and still keep the contract, and be
    /// served. Late timers move logical arrivals; up to that much no message has to wait. The default is ten
    /// intervals and at most 10 ms.
    pub fn jitter_allowance(&self) -> Nanos {
        let default = || (self.interval() * JITTER_DEFAULT_INTERVALS).min(JITTER_DEFAULT_MAX);
        self.jitter.unwrap_or_else(default)
    }
    /// How far ahead of its logical arrival stages may serve a message, in addition to the bounds upstream:
    /// a, or zero if every hop holds to the logical arrival.
    pub fn early_service(&self) -> Nanos {
        match self.horizon {
            Horizon::Cumulative => self.jitter_allowance(),
            Horizon::Regulated => Nanos::ZERO,
        }
    }

    /// I, the interval between messages.
    pub const fn interval(&self) -> Nanos {
        self.rate_max.interval()
    }
    /// I', the interval that policing and admission use.
    pub const fn policed_interval(&self) -> Nanos {
        self.rate_max.policed_interval()
    }
    /// Packets of a largest message in fragments of `fragment_bytes` payload.
    pub const fn packets_max(&self, fragment_bytes: u32) -> u32 {
        self.message_bytes_max.div_ceil(if fragment_bytes == 0 { 1 } else { fragment_bytes })
    }
}
