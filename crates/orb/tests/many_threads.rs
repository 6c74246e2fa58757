//! A server whose threads are many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use punctual_orb::{Endpoint, Operations, Options, Orb, Reply, Servant, SystemException, bad_operation};

/// More than tables of objects have places for unless they are told.
const THREADS: usize = 5_000;

struct Nothing;

impl Servant for Nothing {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:punctual/Nothing:1.0"]
    }

    fn operations(&self) -> &'static Operations {
        static NONE: Operations = Operations::new(0, &[0], &[]);
        &NONE
    }

    fn dispatch(
        &self,
        _operation: usize,
        _arguments: &mut punctual_giop::Decoder<'_>,
        _reply: &mut Reply<'_>,
    ) -> Result<(), SystemException> {
        Err(bad_operation())
    }
}

#[test]
fn thousands_of_threads_activate_objects() {
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    let all_have = Arc::new(Barrier::new(THREADS));
    let start = |_| {
        let (poa, all_have) = (orb.root_poa(), Arc::clone(&all_have));
        let activate = move || {
            // A thread that panics does not come to the others.
            let activated = AssertUnwindSafe(|| poa.activate_object(Arc::new(Nothing)));
            let id = catch_unwind(activated);
            all_have.wait();
            poa.deactivate_object(&id.expect("no panic").expect("it is active")).expect("it is active");
        };
        thread::Builder::new().stack_size(64 << 10).spawn(activate).expect("it starts")
    };
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    threads.into_iter().for_each(|one| one.join().expect("it does not panic"));
}
