//! The kinds of stages.

/// Kind of the stage that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A link with one packet outstanding.
    LinkDepthOne,
    /// A link driven by completions.
    LinkDepthTwo,
    /// A link driven by the clock.
    LinkByClock,
    /// A processor that fragments.
    SourceCpu,
    /// A processor that passes on.
    ForwardCpu,
    /// A processor that reassembles.
    SinkCpu,
}

pub const KINDS: [Kind; 6] = [
    Kind::LinkDepthOne,
    Kind::LinkDepthTwo,
    Kind::LinkByClock,
    Kind::SourceCpu,
    Kind::ForwardCpu,
    Kind::SinkCpu,
];
