//! The system exceptions that the standard has.

macro_rules! kinds {
    ($($kind:ident $name:literal $meaning:literal),* $(,)?) => {
        /// Why a call failed, by the names of the standard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SystemExceptionKind {
            $(#[doc = $meaning] $kind,)*
        }

        impl SystemExceptionKind {
            /// All that the standard has.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name in the standard.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The repository identifier.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!("IDL:omg.org/CORBA/", $name, ":1.0"),)*
                }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => $meaning,)*
                }
            }
        }
    };
}

kinds! {
    Unknown "UNKNOWN" "the server raised an exception that has no name here",
    BadParam "BAD_PARAM" "an argument is not allowed",
    NoMemory "NO_MEMORY" "memory is exhausted",
    ImpLimit "IMP_LIMIT" "a limit of the implementation is exceeded",
    CommFailure "COMM_FAILURE" "the connection failed during the call",
    InvObjref "INV_OBJREF" "the reference is malformed",
    NoPermission "NO_PERMISSION" "the caller may not do this",
    Internal "INTERNAL" "an internal error of the ORB",
    Marshal "MARSHAL" "a message has bytes that are no value of the type",
    Initialize "INITIALIZE" "the ORB could not start",
    NoImplement "NO_IMPLEMENT" "the operation has no implementation",
    BadTypecode "BAD_TYPECODE" "a description of a type is wrong",
    BadOperation "BAD_OPERATION" "the object has no such operation",
    NoResources "NO_RESOURCES" "a resource is exhausted",
    NoResponse "NO_RESPONSE" "the response is not there yet",
    PersistStore "PERSIST_STORE" "the persistent storage failed",
    BadInvOrder "BAD_INV_ORDER" "calls came in a wrong order",
    Transient "TRANSIENT" "the object cannot be reached now; a later call may succeed",
    FreeMem "FREE_MEM" "memory could not be freed",
    InvIdent "INV_IDENT" "an identifier has a wrong syntax",
    InvFlag "INV_FLAG" "a flag is wrong",
    IntfRepos "INTF_REPOS" "the interface repository failed",
    BadContext "BAD_CONTEXT" "a context object is wrong",
    ObjAdapter "OBJ_ADAPTER" "the object adapter failed",
    DataConversion "DATA_CONVERSION" "a value cannot be converted",
    ObjectNotExist "OBJECT_NOT_EXIST" "the object does not exist and never will",
    TransactionRequired "TRANSACTION_REQUIRED" "a transaction is necessary",
    TransactionRolledback "TRANSACTION_ROLLEDBACK" "the transaction was rolled back",
    InvalidTransaction "INVALID_TRANSACTION" "the transaction is not valid",
    InvPolicy "INV_POLICY" "policies do not fit together",
    CodesetIncompatible "CODESET_INCOMPATIBLE" "client and server have no code set in common",
    Rebind "REBIND" "the object is elsewhere, and a policy forbids to follow",
    Timeout "TIMEOUT" "the time of the call has passed",
    TransactionUnavailable "TRANSACTION_UNAVAILABLE" "the transaction service cannot be reached",
    TransactionMode "TRANSACTION_MODE" "the object does not allow this kind of transaction",
    BadQos "BAD_QOS" "the quality of service is not supported",
    InvalidActivity "INVALID_ACTIVITY" "the activity is not valid here",
    ActivityCompleted "ACTIVITY_COMPLETED" "the activity has ended",
    ActivityRequired "ACTIVITY_REQUIRED" "an activity is necessary",
    ThreadCancelled "THREAD_CANCELLED" "the thread was cancelled",
}

impl SystemExceptionKind {
    /// The kind with this repository identifier.
    pub fn from_id(id: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.id().as_bytes() == id)
    }
}
