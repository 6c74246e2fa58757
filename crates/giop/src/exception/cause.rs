//! Minor codes of this ORB.

macro_rules! causes {
    ($($cause:ident $number:literal $text:literal),* $(,)?) => {
        /// Why a call failed: minor codes of this ORB.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $(#[doc = $text] $cause = $number,)*
        }

        impl Cause {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$cause),*];

            /// What it means.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$cause => $text,)*
                }
            }
        }
    };
}

causes! {
    Refused 1 "nothing listens at the address: the connection was refused",
    UnknownHost 2 "the host is not known: its name has no address",
    Unreachable 3 "there is no way to the host",
    NoSocket 4 "there is no Unix socket with this path",
    Denied 5 "the system does not allow the connection",
    Unconnected 6 "no connection could be made",
    Closed 7 "the other end has closed the connection",
    Crowded 8 "all connections to the server are in use",
    NoThread 9 "the server has no thread for the request",
    NoMessage 10 "the other end sent bytes that are no message that it may send, or a message that is too long",
}
