//! How far the caller of a oneway operation waits (CORBA 22.2.2.2).

use punctual_giop::message::Response;

/// How far the caller of a oneway operation waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncScope {
    /// Not at all: a thread of the ORB sends the request, and whether it arrives is not known. If too many
    /// requests wait for that thread, the call is refused with `TRANSIENT`. An object of this process is called
    /// before the call returns.
    None,
    /// Until the request is written to the connection.
    #[default]
    WithTransport,
    /// Until the server has found the object, and is going to call it.
    WithServer,
    /// Until the object has performed the operation. System exceptions come back.
    WithTarget,
}

impl SyncScope {
    /// What the request asks the server for.
    pub(crate) fn response(self) -> Response {
        match self {
            Self::None | Self::WithTransport => Response::None,
            Self::WithServer => Response::Server,
            Self::WithTarget => Response::Target,
        }
    }
}
