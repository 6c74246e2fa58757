//! The seven policies of an object adapter (CORBA 11.3.8), and which go together; and the one for connections on
//! which both ends call (CORBA 15.9).

/// How long references are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifespan {
    /// As long as this adapter lives.
    #[default]
    Transient,
    /// As long as an adapter of this name can be made, in later processes too.
    Persistent,
}

/// How many objects a servant may implement at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdUniqueness {
    /// One.
    #[default]
    Unique,
    /// Many.
    Multiple,
}

/// Who chooses the identifiers of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdAssignment {
    /// The adapter.
    #[default]
    System,
    /// The application.
    User,
}

/// Whether a servant becomes an object when its reference is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImplicitActivation {
    /// No: it is activated first.
    #[default]
    No,
    /// Yes.
    Yes,
}

/// Whether the adapter remembers which servant implements an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServantRetention {
    /// It does.
    #[default]
    Retain,
    /// It does not.
    NonRetain,
}

/// Who serves objects that are not active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestProcessing {
    /// Nobody.
    #[default]
    ActiveObjectsOnly,
    /// One servant for all.
    DefaultServant,
    /// The servant that a manager names: an activator with `Retain`, a locator without.
    ServantManager,
}

/// In how many threads servants are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadModel {
    /// In those of the ORB.
    #[default]
    OrbControlled,
    /// In one at a time.
    SingleThread,
    /// In the application's main thread: the one that calls [`Orb::run`](crate::Orb::run) or
    /// [`Orb::perform_work`](crate::Orb::perform_work) first. Requests wait for it at most `Options::hold_time`.
    MainThread,
}

/// Whether requests for the objects of an adapter may use connections on which both ends call, where the ORB is
/// configured to have them (`BiDirPolicy`, CORBA 15.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bidirectional {
    /// No (`NORMAL`): a client's offer waits until one of its requests is for an adapter with `Both`, and the other end
    /// of a connection that was opened from here may not call them over it.
    #[default]
    Normal,
    /// Yes (`BOTH`).
    Both,
}

/// The policies of an object adapter. The default is the standard's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// How long references are valid.
    pub lifespan: Lifespan,
    /// How many objects a servant may implement.
    pub id_uniqueness: IdUniqueness,
    /// Who chooses identifiers.
    pub id_assignment: IdAssignment,
    /// Whether servants become objects on demand.
    pub implicit_activation: ImplicitActivation,
    /// Whether servants are remembered.
    pub servant_retention: ServantRetention,
    /// Who serves objects that are not active.
    pub request_processing: RequestProcessing,
    /// In how many threads servants are called.
    pub thread_model: ThreadModel,
    /// Whether connections on which both ends call may be used.
    pub bidirectional: Bidirectional,
}

impl Policies {
    /// Those of the root adapter (CORBA 11.3.8.1). Whether both ends call is left to the ORB's options.
    pub(super) const ROOT: Self = Self {
        lifespan: Lifespan::Transient,
        id_uniqueness: IdUniqueness::Unique,
        id_assignment: IdAssignment::System,
        implicit_activation: ImplicitActivation::Yes,
        servant_retention: ServantRetention::Retain,
        request_processing: RequestProcessing::ActiveObjectsOnly,
        thread_model: ThreadModel::OrbControlled,
        bidirectional: Bidirectional::Both,
    };

    /// Whether they go together (CORBA 11.3.8): the name of the policy that does not.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let retains = self.servant_retention == ServantRetention::Retain;
        if self.implicit_activation == ImplicitActivation::Yes
            && (self.id_assignment == IdAssignment::User || !retains)
        {
            return Some("implicit activation needs identifiers of the system, and retention");
        }
        if self.request_processing == RequestProcessing::ActiveObjectsOnly && !retains {
            return Some("without retention, requests need a default servant or a servant manager");
        }
        if self.request_processing == RequestProcessing::DefaultServant
            && self.id_uniqueness == IdUniqueness::Unique
        {
            return Some("a default servant implements many objects, so identifiers are not unique");
        }
        None
    }
}
