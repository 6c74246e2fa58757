//! Detects threads of an engine in this process, which exist only with the feature `embedded`.

#[cfg(feature = "embedded")]
pub(crate) use punctual_engine::direct::{is_processor, ring_outbox};
#[cfg(feature = "embedded")]
pub(crate) use punctual_host::EmbeddedHost;

#[cfg(not(feature = "embedded"))]
pub(crate) use none::{EmbeddedHost, is_processor, ring_outbox};

/// No thread is a processor's, and there is no host in this process.
#[cfg(not(feature = "embedded"))]
mod none {
    use punctual_proto::ids::ChannelId;

    /// No host: this build has none.
    pub(crate) enum EmbeddedHost {}

    pub(crate) const fn is_processor() -> bool {
        false
    }

    pub(crate) const fn ring_outbox(_: ChannelId) {}
}
