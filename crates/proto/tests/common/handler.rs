//! A handler of the executor that asks for nothing.

use punctual_proto::Nanos;
use punctual_proto::sched::{Class, HandlerParameters, Trigger};

pub const PLAIN: HandlerParameters = HandlerParameters {
    class: Class::Guaranteed,
    level: 0,
    period: Nanos::ZERO,
    place: 0,
    quantum_packets: 1,
    budget: None,
    trigger: Trigger::Reactive,
};
