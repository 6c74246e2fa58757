//! Object adapters: each policy, each state of a manager, servant managers, and adapters of adapters. The
//! client is another ORB: all requests come over connections.

#[path = "common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[path = "common/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "common/probe.rs"]
#[allow(dead_code)]
mod probe;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use probe::{client, listening, object, policies, servant, server};
use punctual_giop::{Reference, SystemException, SystemExceptionKind as Kind};
use punctual_orb::poa::{
    AdapterActivator, Cookie, Diversion, Ending, IdAssignment, IdUniqueness, ImplicitActivation, Lifespan,
    ObjectId, Poa, PoaError, Policies, RequestProcessing, ServantActivator, ServantLocator, ServantRetention,
    State, ThreadModel,
};
use punctual_orb::{Concurrency, Endpoint, Options, Orb, Servant, current};

const INTERFACE: &str = "IDL:punctual/Demo/Callback:1.0";

/// A child of the root with these policies, which is active.
fn child(orb: &Orb, name: &str, policies: Policies) -> Poa {
    let manager = orb.root_poa().manager().clone();
    orb.root_poa().create_poa(name, policies, Some(&manager)).expect("policies that go together")
}

fn call(reference: &Reference, number: i32) -> Result<(), SystemException> {
    let orb = checks::client();
    client(&orb, reference).called(number)
}

fn kind(reference: &Reference) -> Result<(), Kind> {
    call(reference, 0).map_err(|exception| exception.kind)
}

fn nothing() -> Arc<dyn Servant> {
    servant(|_| Ok(()))
}

#[test]
fn policies_go_together_as_the_standard_says() {
    let orb = server(listening());
    let all = |number: usize| Policies {
        id_uniqueness: [IdUniqueness::Unique, IdUniqueness::Multiple][number & 1],
        id_assignment: [IdAssignment::System, IdAssignment::User][number >> 1 & 1],
        implicit_activation: [ImplicitActivation::No, ImplicitActivation::Yes][number >> 2 & 1],
        servant_retention: [ServantRetention::Retain, ServantRetention::NonRetain][number >> 3 & 1],
        lifespan: [Lifespan::Transient, Lifespan::Persistent][number >> 4 & 1],
        thread_model: [ThreadModel::OrbControlled, ThreadModel::SingleThread][number >> 5 & 1],
        request_processing: [
            RequestProcessing::ActiveObjectsOnly,
            RequestProcessing::DefaultServant,
            RequestProcessing::ServantManager,
        ][number >> 6],
        ..Policies::default()
    };
    for number in 0..3 << 6 {
        let policies = all(number);
        let retains = policies.servant_retention == ServantRetention::Retain;
        // CORBA 11.3.8, sentence by sentence.
        let is_allowed = (retains || policies.request_processing != RequestProcessing::ActiveObjectsOnly)
            && (policies.request_processing != RequestProcessing::DefaultServant
                || policies.id_uniqueness == IdUniqueness::Multiple)
            && (policies.implicit_activation == ImplicitActivation::No
                || policies.id_assignment == IdAssignment::System && retains);
        let made = orb.root_poa().create_poa(&number.to_string(), policies, None);
        assert_eq!(made.is_ok(), is_allowed, "{policies:?}");
        assert!(is_allowed || matches!(made, Err(PoaError::InvalidPolicy(_))));
    }
}

#[test]
fn identifiers_are_assigned_and_unique_as_the_policies_say() {
    let orb = server(listening());
    let by_system = child(&orb, "system", Policies::default());
    let by_user = child(&orb, "user", policies(|all| all.id_assignment = IdAssignment::User));
    let one = nothing();
    let first = by_system.activate_object(Arc::clone(&one)).expect("a new servant");
    assert_eq!(by_system.activate_object(Arc::clone(&one)), Err(PoaError::ServantAlreadyActive));
    assert_eq!(
        by_system.activate_object_with_id(first.clone(), nothing()),
        Err(PoaError::ObjectAlreadyActive)
    );
    assert_eq!(by_system.activate_object_with_id("x".into(), nothing()), Err(PoaError::WrongPolicy));
    assert_eq!(by_system.create_reference_with_id(&"x".into(), INTERFACE), Err(PoaError::WrongPolicy));
    assert_eq!(by_user.activate_object(nothing()), Err(PoaError::WrongPolicy));
    assert_eq!(by_user.create_reference(INTERFACE), Err(PoaError::WrongPolicy));
    assert_eq!(by_user.activate_object_with_id("x".into(), nothing()), Ok(()));
    assert_eq!(by_user.activate_object_with_id("x".into(), nothing()), Err(PoaError::ObjectAlreadyActive));
    let many = child(&orb, "many", policies(|all| all.id_uniqueness = IdUniqueness::Multiple));
    let ids = [0; 3].map(|_| many.activate_object(Arc::clone(&one)).expect("a servant of many"));
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    for id in ids {
        let reference = many.id_to_reference(&id).expect("it is active");
        assert_eq!(many.reference_to_id(&reference).as_ref(), Ok(&id));
        assert_eq!(by_system.reference_to_id(&reference), Err(PoaError::WrongAdapter));
        assert!(Arc::ptr_eq(&many.reference_to_servant(&reference).expect("it is active"), &one));
        assert_eq!(kind(&reference), Ok(()));
    }
    // An object that has ended is not found by its old reference, nor is its place's next one.
    let reference = by_system.id_to_reference(&first).expect("it is active");
    by_system.deactivate_object(&first).expect("it is active");
    assert_eq!(by_system.deactivate_object(&first), Err(PoaError::ObjectNotActive));
    by_system.activate_object(one).expect("the servant is free");
    assert_eq!(kind(&reference), Err(Kind::ObjectNotExist));
}

#[test]
fn servants_become_objects_on_demand_where_the_policy_says_so() {
    let orb = server(listening());
    let explicit = child(&orb, "explicit", Policies::default());
    let one = nothing();
    assert_eq!(explicit.servant_to_id(&one), Err(PoaError::ServantNotActive));
    let implicit = child(&orb, "implicit", policies(|all| all.implicit_activation = ImplicitActivation::Yes));
    let reference = implicit.servant_to_reference(&one).expect("it is activated");
    assert_eq!(implicit.servant_to_reference(&one), Ok(reference.clone()), "once");
    assert_eq!(kind(&reference), Ok(()));
    let many = policies(|all| {
        all.implicit_activation = ImplicitActivation::Yes;
        all.id_uniqueness = IdUniqueness::Multiple;
    });
    let many = child(&orb, "many", many);
    assert_ne!(many.servant_to_id(&one), many.servant_to_id(&one), "a new object each time");
}

/// A server with persistent objects at this port: adapters `a/b`, with an object `x`.
fn persistent(port: u16, is_made_on_demand: bool) -> (Orb, Option<Reference>) {
    let orb = server(Options::listening(Endpoint::tcp("127.0.0.1", port)));
    let make = |parent: &Poa, name: &str| {
        let lasting = policies(|all| {
            all.lifespan = Lifespan::Persistent;
            all.id_assignment = IdAssignment::User;
        });
        parent.create_poa(name, lasting, Some(parent.manager())).expect("a new name")
    };
    if is_made_on_demand {
        struct Makes<F>(F);
        impl<F: Fn(&Poa, &str) -> bool + Send + Sync> AdapterActivator for Makes<F> {
            fn unknown_adapter(&self, parent: &Poa, name: &str) -> bool {
                (self.0)(parent, name)
            }
        }
        let inner = Arc::new(Makes(move |parent: &Poa, name: &str| {
            let made = make(parent, name);
            made.activate_object_with_id("x".into(), nothing()).expect("a new object");
            name == "b"
        }));
        let outer = Makes(move |parent: &Poa, name: &str| {
            make(parent, name).set_adapter_activator(Some(inner.clone()));
            name == "a"
        });
        orb.root_poa().set_adapter_activator(Some(Arc::new(outer)));
        return (orb, None);
    }
    let poa = make(&make(&orb.root_poa(), "a"), "b");
    poa.activate_object_with_id("x".into(), nothing()).expect("a new object");
    let reference = poa.id_to_reference(&"x".into()).expect("it is active");
    (orb, Some(reference))
}

#[test]
fn persistent_references_outlive_their_server_and_transient_ones_do_not() {
    let (orb, reference) = persistent(0, false);
    let reference = reference.expect("the adapters are made");
    let transient = object(&orb, |_| Ok(()));
    let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
    // One client has connections to the first server, and calls all of them.
    let client_orb = checks::client();
    let (lasting, passing) = (client(&client_orb, &reference), client(&client_orb, &transient));
    assert_eq!((lasting.called(0), passing.called(0)), (Ok(()), Ok(())));
    assert_eq!(lasting.called_async(0).wait(), Ok(()));
    for is_made_on_demand in [false, true] {
        // Its adapters are made before, or by their activators.
        if is_made_on_demand {
            persistent_again(&lasting, &passing, at.port, true);
        } else {
            orb.shutdown(true);
            assert_eq!(lasting.called(0).map_err(|exception| exception.kind), Err(Kind::Transient));
            persistent_again(&lasting, &passing, at.port, false);
        }
    }
}

fn persistent_again(
    lasting: &demo::demo::CallbackClient,
    passing: &demo::demo::CallbackClient,
    port: u16,
    is_made_on_demand: bool,
) {
    let (orb, _) = persistent(port, is_made_on_demand);
    assert_eq!(lasting.called(0), Ok(()));
    assert_eq!(lasting.called_async(0).wait(), Ok(()));
    assert_eq!(passing.called(0).map_err(|exception| exception.kind), Err(Kind::ObjectNotExist));
    orb.shutdown(true);
}

#[test]
fn a_persistent_adapter_that_was_destroyed_is_found_again_by_its_name() {
    let orb = server(listening());
    let lasting = policies(|all| all.lifespan = Lifespan::Persistent);
    let first = child(&orb, "p", lasting);
    let id = first.activate_object(nothing()).expect("a new servant");
    let reference = first.id_to_reference(&id).expect("it is active");
    first.destroy(true, true);
    assert_eq!(first.create_poa("q", lasting, None).err(), Some(PoaError::Destroyed));
    assert_eq!(kind(&reference), Err(Kind::ObjectNotExist));
    let second = child(&orb, "p", lasting);
    second.activate_object_with_id(id.clone(), nothing()).expect("it has ended");
    assert_eq!(second.reference_to_id(&reference), Ok(id));
    assert_eq!(kind(&reference), Ok(()));
    // Numbers of one process are not those of another.
    let other = child(&server(listening()), "p", lasting);
    assert_ne!(other.activate_object(nothing()), second.activate_object(nothing()));
}

#[test]
fn nested_adapters_know_each_other_and_end_together() {
    let orb = server(listening());
    let manager = orb.root_poa().manager().clone();
    let mut poa = orb.root_poa();
    let mut references = Vec::new();
    for level in 0..10 {
        poa = poa.create_poa(&format!("level {level}"), Policies::default(), Some(&manager)).expect("new");
        references.push(poa.serve(demo::demo::CallbackSkeleton::new(probe::Probe(|_| Ok(())))).expect("new"));
    }
    references.iter().for_each(|reference| assert_eq!(kind(reference), Ok(())));
    let above = poa.parent().expect("it is not the root");
    assert_eq!(above.name(), "level 8");
    assert_eq!(above.children().iter().map(|poa| poa.name().to_owned()).collect::<Vec<_>>(), ["level 9"]);
    assert!(orb.root_poa().parent().is_none());
    assert_eq!(
        above.create_poa("level 9", Policies::default(), None).err(),
        Some(PoaError::AdapterAlreadyExists)
    );
    let fifth = (0..5).fold(orb.root_poa(), |poa, level| {
        poa.find_poa(&format!("level {level}"), false).expect("it is there")
    });
    fifth.destroy(true, true);
    let alive: Vec<bool> = references.iter().map(|reference| kind(reference).is_ok()).collect();
    assert_eq!(alive, [true, true, true, true, false, false, false, false, false, false]);
    assert_eq!(fifth.parent().map(|poa| poa.children().len()), Some(0));
}

#[test]
fn adapters_are_made_once_on_demand_or_not_at_all() {
    struct Makes(AtomicUsize);
    impl AdapterActivator for Makes {
        fn unknown_adapter(&self, parent: &Poa, name: &str) -> bool {
            self.0.fetch_add(1, Ordering::SeqCst);
            let lasting = policies(|all| {
                all.lifespan = Lifespan::Persistent;
                all.id_assignment = IdAssignment::User;
            });
            let made = name == "good" && parent.create_poa(name, lasting, Some(parent.manager())).is_ok();
            if made {
                let poa = parent.find_poa(name, false).expect("it was made");
                poa.activate_object_with_id("x".into(), nothing()).expect("a new object");
            }
            made
        }
    }
    let orb = server(listening());
    assert_eq!(orb.root_poa().find_poa("good", true).err(), Some(PoaError::AdapterNonExistent));
    let makes = Arc::new(Makes(AtomicUsize::new(0)));
    orb.root_poa().set_adapter_activator(Some(makes.clone()));
    assert_eq!(orb.root_poa().find_poa("good", false).err(), Some(PoaError::AdapterNonExistent));
    assert_eq!(orb.root_poa().find_poa("bad", true).err(), Some(PoaError::AdapterNonExistent));
    let reference = orb.root_poa().find_poa("good", true).expect("it is made");
    let reference = reference.id_to_reference(&"x".into()).expect("it is active");
    orb.root_poa().find_poa("good", false).expect("it is there").destroy(true, true);
    makes.0.store(0, Ordering::SeqCst);
    // Requests that come at once ask for it once.
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| kind(&reference))).collect();
        calls.into_iter().for_each(|call| assert_eq!(call.join().expect("no panic"), Ok(())));
    });
    assert_eq!(makes.0.load(Ordering::SeqCst), 1);
}

/// Makes a servant for each object, and writes down what it is told.
struct Activates {
    told: Mutex<Vec<String>>,
    is_shared: Option<Arc<dyn Servant>>,
}

impl Activates {
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().expect("no panic"))
    }

    fn tell(&self, what: String) {
        self.told.lock().expect("no panic").push(what);
    }
}

fn text(id: &ObjectId) -> String {
    match id {
        ObjectId::User(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ObjectId::System(number) => number.to_string(),
    }
}

impl ServantActivator for Activates {
    fn incarnate(&self, id: &ObjectId, _: &Poa) -> Result<Arc<dyn Servant>, Diversion> {
        self.tell(format!("incarnate {}", text(id)));
        if text(id) == "nobody" {
            return Err(SystemException::new(Kind::ObjectNotExist, 0, punctual_giop::Completion::No).into());
        }
        Ok(self.is_shared.clone().unwrap_or_else(nothing))
    }

    fn etherealize(&self, id: &ObjectId, _: &Poa, _: Arc<dyn Servant>, ending: Ending) {
        self.tell(format!("etherealize {} {} {}", text(id), ending.is_cleanup, ending.is_used));
    }
}

fn activated(orb: &Orb, name: &str, shared: Option<Arc<dyn Servant>>) -> (Poa, Arc<Activates>) {
    let made = policies(|all| {
        all.id_assignment = IdAssignment::User;
        all.request_processing = RequestProcessing::ServantManager;
        if shared.is_some() {
            all.id_uniqueness = IdUniqueness::Multiple;
        }
    });
    let poa = child(orb, name, made);
    let activates = Arc::new(Activates { told: Mutex::default(), is_shared: shared });
    poa.set_servant_activator(activates.clone()).expect("the policy");
    (poa, activates)
}

fn named(poa: &Poa, name: &str) -> Reference {
    poa.create_reference_with_id(&name.into(), INTERFACE).expect("the policy")
}

#[test]
fn an_activator_makes_each_servant_once_and_is_told_of_its_end() {
    let orb = server(listening());
    let (poa, activates) = activated(&orb, "activated", None);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| kind(&named(&poa, "x")))).collect();
        calls.into_iter().for_each(|call| assert_eq!(call.join().expect("no panic"), Ok(())));
    });
    assert_eq!(activates.told(), ["incarnate x"]);
    assert_eq!(kind(&named(&poa, "nobody")), Err(Kind::ObjectNotExist));
    assert_eq!(activates.told(), ["incarnate nobody"]);
    poa.deactivate_object(&"x".into()).expect("it is active");
    assert_eq!(activates.told(), ["etherealize x false false"]);
    assert_eq!(kind(&named(&poa, "x")), Ok(()));
    assert_eq!(activates.told(), ["incarnate x"]);
    // An object of the application is not the activator's.
    poa.activate_object_with_id("own".into(), nothing()).expect("a new object");
    assert_eq!(kind(&named(&poa, "own")), Ok(()));
    poa.deactivate_object(&"own".into()).expect("it is active");
    poa.destroy(true, true);
    assert_eq!(activates.told(), ["etherealize x true false"]);
}

#[test]
fn without_etherealize_a_destroyed_adapter_tells_nobody() {
    let orb = server(listening());
    let (poa, activates) = activated(&orb, "activated", None);
    assert_eq!(kind(&named(&poa, "x")), Ok(()));
    poa.destroy(false, true);
    assert_eq!(activates.told(), ["incarnate x"]);
}

#[test]
fn an_activator_learns_whether_its_servant_is_used_elsewhere() {
    let orb = server(listening());
    let shared = nothing();
    let (poa, activates) = activated(&orb, "activated", Some(Arc::clone(&shared)));
    assert_eq!((kind(&named(&poa, "x")), kind(&named(&poa, "y"))), (Ok(()), Ok(())));
    activates.told();
    poa.deactivate_object(&"x".into()).expect("it is active");
    poa.deactivate_object(&"y".into()).expect("it is active");
    assert_eq!(activates.told(), ["etherealize x false true", "etherealize y false false"]);
    // Objects of the application count, too.
    poa.activate_object_with_id("own".into(), shared).expect("a new object");
    for expected in ["etherealize x false true", "etherealize x false false"] {
        assert_eq!(kind(&named(&poa, "x")), Ok(()));
        poa.deactivate_object(&"x".into()).expect("it is active");
        assert_eq!(activates.told(), ["incarnate x", expected]);
        // The second time it is gone.
        let _ = poa.deactivate_object(&"own".into());
    }
}

/// A servant that waits: it says that it has begun, and goes on when it is told.
fn gate() -> (Arc<dyn Servant>, Receiver<i32>, Sender<()>) {
    let (begins, begun) = channel();
    let (go_on, goes_on) = channel::<()>();
    let (begins, goes_on) = (Mutex::new(begins), Mutex::new(goes_on));
    let waits = servant(move |number| {
        begins.lock().expect("no panic").send(number).expect("the test waits");
        goes_on.lock().expect("no panic").recv().expect("the test tells it");
        Ok(())
    });
    (waits, begun, go_on)
}

#[test]
fn a_deactivated_object_ends_with_its_last_request_and_is_made_again_after() {
    let orb = server(listening());
    let (waits, begun, go_on) = gate();
    let (poa, activates) = activated(&orb, "activated", Some(waits));
    let reference = named(&poa, "x");
    thread::scope(|scope| {
        let first = scope.spawn(|| kind(&reference));
        assert_eq!(begun.recv(), Ok(0));
        poa.deactivate_object(&"x".into()).expect("it is active");
        assert_eq!(activates.told(), ["incarnate x"], "its request is being served");
        let second = scope.spawn(|| kind(&reference));
        go_on.send(()).expect("the servant waits");
        assert_eq!(first.join().expect("no panic"), Ok(()));
        assert_eq!(begun.recv(), Ok(0));
        assert_eq!(activates.told(), ["etherealize x false false", "incarnate x"]);
        go_on.send(()).expect("the servant waits");
        assert_eq!(second.join().expect("no panic"), Ok(()));
    });
}

#[test]
fn a_locator_names_a_servant_for_each_request() {
    struct Locates(Mutex<Vec<String>>);
    impl ServantLocator for Locates {
        fn preinvoke(
            &self,
            id: &ObjectId,
            _: &Poa,
            operation: &str,
        ) -> Result<(Arc<dyn Servant>, Cookie), Diversion> {
            self.0.lock().expect("no panic").push(format!("pre {} {operation}", text(id)));
            let name = text(id);
            Ok((servant(failing), Box::new(name)))
        }

        fn postinvoke(&self, id: &ObjectId, _: &Poa, operation: &str, cookie: Cookie, _: Arc<dyn Servant>) {
            assert_eq!(cookie.downcast_ref(), Some(&text(id)));
            self.0.lock().expect("no panic").push(format!("post {} {operation}", text(id)));
        }
    }
    let located = policies(|all| {
        all.id_assignment = IdAssignment::User;
        all.servant_retention = ServantRetention::NonRetain;
        all.request_processing = RequestProcessing::ServantManager;
    });
    let orb = server(listening());
    let poa = child(&orb, "located", located);
    assert_eq!(kind(&named(&poa, "x")), Err(Kind::ObjAdapter), "no locator is set");
    let locates = Arc::new(Locates(Mutex::default()));
    poa.set_servant_locator(locates.clone()).expect("the policy");
    assert_eq!(poa.set_default_servant(nothing()), Err(PoaError::WrongPolicy));
    assert_eq!(call(&named(&poa, "x"), 0), Ok(()));
    assert!(call(&named(&poa, "y"), 1).is_err(), "the servant fails");
    let told = ["pre x called", "post x called", "pre y called", "post y called"];
    assert_eq!(*locates.0.lock().expect("no panic"), told);
    assert_eq!(poa.activate_object_with_id("x".into(), nothing()), Err(PoaError::WrongPolicy));
}

fn failing(number: i32) -> Result<(), SystemException> {
    match number {
        0 => Ok(()),
        _ => Err(SystemException::new(Kind::NoPermission, 0, punctual_giop::Completion::Yes)),
    }
}

#[test]
fn a_default_servant_serves_all_objects_and_learns_which() {
    for retention in [ServantRetention::Retain, ServantRetention::NonRetain] {
        let by_default = policies(|all| {
            all.id_assignment = IdAssignment::User;
            all.id_uniqueness = IdUniqueness::Multiple;
            all.servant_retention = retention;
            all.request_processing = RequestProcessing::DefaultServant;
        });
        let orb = server(listening());
        let poa = child(&orb, "default", by_default);
        assert_eq!(kind(&named(&poa, "x")), Err(Kind::ObjAdapter), "no servant is set");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (of_servant, own_poa) = (Arc::clone(&seen), poa.clone());
        let own: Arc<Mutex<Option<Arc<dyn Servant>>>> = Arc::default();
        let own_servant = Arc::clone(&own);
        let default = servant(move |_| {
            let id = current::object_id().expect("a request is served");
            let own = own_servant.lock().expect("no panic").clone().expect("it is set");
            assert_eq!(own_poa.servant_to_id(&own).as_ref(), Ok(&id));
            of_servant.lock().expect("no panic").push(text(&id));
            Ok(())
        });
        *own.lock().expect("no panic") = Some(Arc::clone(&default));
        poa.set_default_servant(Arc::clone(&default)).expect("the policy");
        ["x", "y", "x"].iter().for_each(|name| assert_eq!(kind(&named(&poa, name)), Ok(())));
        assert_eq!(*seen.lock().expect("no panic"), ["x", "y", "x"]);
        assert_eq!(poa.servant_to_id(&default), Err(PoaError::ServantNotActive), "no request is served");
        if retention == ServantRetention::Retain {
            poa.activate_object_with_id("own".into(), nothing()).expect("a new object");
            assert_eq!(kind(&named(&poa, "own")), Ok(()));
            assert_eq!(seen.lock().expect("no panic").len(), 3, "an active object has its own servant");
        }
        *own.lock().expect("no panic") = None;
    }
}

/// The most servants that ran at once, of calls from eight clients.
fn most_at_once(model: ThreadModel) -> usize {
    let orb = server(listening());
    let poa = child(&orb, "threads", policies(|all| all.thread_model = model));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let both = std::sync::Barrier::new(2);
    let (in_servant, most_seen) = (Arc::clone(&now), Arc::clone(&most));
    let together = model == ThreadModel::OrbControlled;
    let does = move |_| {
        most_seen.fetch_max(in_servant.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if together {
            both.wait();
        }
        in_servant.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    };
    let id = poa.activate_object(servant(does)).expect("a new servant");
    let reference = poa.id_to_reference(&id).expect("it is active");
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| call(&reference, 0))).collect();
        calls.into_iter().for_each(|call| assert_eq!(call.join().expect("no panic"), Ok(())));
    });
    most.load(Ordering::SeqCst)
}

#[test]
fn servants_run_one_at_a_time_where_the_policy_says_so() {
    assert_eq!(most_at_once(ThreadModel::SingleThread), 1);
    assert!(most_at_once(ThreadModel::OrbControlled) >= 2);
}

#[test]
fn a_servant_of_a_single_thread_calls_its_own_adapter() {
    let orb = server(listening());
    let poa = child(&orb, "single", policies(|all| all.thread_model = ThreadModel::SingleThread));
    let id = poa.activate_object(nothing()).expect("a new servant");
    let (other, of_servant) = (poa.id_to_reference(&id).expect("it is active"), orb.clone());
    let calls = servant(move |_| client(&of_servant, &other).called(0));
    let id = poa.activate_object(calls).expect("a new servant");
    assert_eq!(kind(&poa.id_to_reference(&id).expect("it is active")), Ok(()));
}

#[test]
fn a_manager_in_each_state_does_with_requests_what_it_says() {
    let orb = server(listening());
    let poa = orb.root_poa().create_poa("p", Policies::default(), None).expect("a new name");
    let id = poa.activate_object(nothing()).expect("a new servant");
    let reference = poa.id_to_reference(&id).expect("it is active");
    let manager = poa.manager().clone();
    assert_eq!(manager.state(), State::Holding, "at first");
    let client_orb = checks::client();
    let called = client(&client_orb, &reference);
    let held = called.called_async(0);
    assert!(held.wait_for(Duration::from_millis(10)).is_err_and(|held| {
        manager.activate().expect("it is not inactive");
        held.wait() == Ok(())
    }));
    assert_eq!(kind(&reference), Ok(()));
    manager.discard_requests().expect("it is not inactive");
    let discarded = call(&reference, 0).expect_err("discarded");
    let minor = punctual_giop::exception::minor::DISCARDED;
    assert_eq!(discarded, SystemException::new(Kind::Transient, minor, punctual_giop::Completion::No));
    manager.activate().expect("it is not inactive");
    assert_eq!(kind(&reference), Ok(()));
    // A request that waits learns what the manager becomes: here, that it is refused for ever.
    manager.hold_requests().expect("it is not inactive");
    let held = called.called_async(0);
    assert!(!held.is_ready());
    manager.deactivate(true).expect("it was active");
    assert_eq!(held.wait().map_err(|exception| exception.kind), Err(Kind::ObjAdapter));
    assert_eq!(kind(&reference), Err(Kind::ObjAdapter));
    for refused in
        [manager.activate(), manager.hold_requests(), manager.discard_requests(), manager.deactivate(true)]
    {
        assert!(refused.is_err(), "for ever");
    }
    assert_eq!(manager.state(), State::Inactive);
}

#[test]
fn a_manager_that_becomes_inactive_ends_the_objects_of_activators() {
    for etherealize in [true, false] {
        let orb = server(listening());
        let (poa, activates) = activated(&orb, "activated", None);
        assert_eq!(kind(&named(&poa, "x")), Ok(()));
        activates.told();
        poa.manager().deactivate(etherealize).expect("it was active");
        let told: &[&str] = if etherealize { &["etherealize x true false"] } else { &[] };
        assert_eq!(activates.told(), told);
    }
}

#[test]
fn a_manager_and_an_adapter_wait_for_requests_that_are_being_served() {
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive] {
        let orb = server(Options { concurrency, ..listening() });
        let (waits, begun, go_on) = gate();
        let poa = child(&orb, "p", Policies::default());
        let id = poa.activate_object(waits).expect("a new servant");
        let reference = poa.id_to_reference(&id).expect("it is active");
        for destroys in [false, true] {
            let (ends, ended) = channel();
            thread::scope(|scope| {
                let request = scope.spawn(|| kind(&reference));
                assert_eq!(begun.recv(), Ok(0));
                let poa = poa.clone();
                scope.spawn(move || {
                    if destroys {
                        poa.destroy(true, true)
                    } else {
                        poa.manager().wait_until_idle()
                    }
                    ends.send(()).expect("the test waits");
                });
                assert!(ended.recv_timeout(Duration::from_millis(10)).is_err(), "it waits");
                go_on.send(()).expect("the servant waits");
                assert_eq!(request.join().expect("no panic"), Ok(()));
                assert_eq!(ended.recv(), Ok(()));
            });
        }
    }
}
