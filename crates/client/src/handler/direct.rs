//! A handler on the thread of an engine in this process.

#[cfg(not(feature = "embedded"))]
pub(super) use none::hand_over;
#[cfg(feature = "embedded")]
pub(super) use on_processor::hand_over;

#[cfg(feature = "embedded")]
mod on_processor;

/// The processor without an engine in this process.
#[cfg(not(feature = "embedded"))]
mod none {
    use std::sync::Arc;

    use punctual_ipc::ring::InboxReader;
    use punctual_proto::Nanos;

    use super::super::{Boxed, Stage};
    use crate::error::Error;
    use crate::processor::EmbeddedHost;
    use crate::receiver::End;

    pub(in crate::handler) fn hand_over(
        engine: &EmbeddedHost,
        _: &End,
        _: InboxReader,
        _: Boxed,
        _: Nanos,
        _: &Arc<Stage>,
    ) -> Result<InboxReader, Error> {
        match *engine {}
    }
}
