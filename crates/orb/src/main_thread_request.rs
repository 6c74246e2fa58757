//! Requests that the thread which has read them hands to the main thread.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use punctual_giop::Encoder;
use punctual_giop::characters::CharacterSet;

use crate::answer::{answer, new_outbox, refuse_request};
use crate::budget::HeldMessage;
use crate::exception::no_thread;
use crate::main_thread::Work;
use crate::poa::Registry;

/// Sends what a request is answered.
pub(crate) type Answers = Box<dyn FnMut(&[u8]) + Send>;

struct MainThreadRequest {
    registry: Arc<Registry>,
    message: Arc<HeldMessage>,
    /// The code set of its strings.
    characters: CharacterSet,
    answers: Answers,
}

impl MainThreadRequest {
    fn send(&mut self, outbox: &Encoder) {
        if !outbox.as_bytes().is_empty() {
            (self.answers)(outbox.as_bytes());
        }
    }
}

impl Work for MainThreadRequest {
    fn serve(mut self: Box<Self>) {
        let mut outbox = new_outbox();
        outbox.set_characters(self.characters);
        let Self { registry, message, answers, .. } = &mut *self;
        // It does not end the connection, nor wait: its bytes are a request, and its manager was active.
        let _ = answer(registry, message.whole(), &mut outbox, answers);
        self.send(&outbox);
    }

    fn refuse(mut self: Box<Self>) {
        let mut outbox = new_outbox();
        refuse_request(self.message.whole(), &mut outbox, &no_thread());
        self.send(&outbox);
    }
}

/// Lets the main thread serve a request.
pub(crate) fn hand_over(
    registry: &Arc<Registry>,
    message: Arc<HeldMessage>,
    characters: CharacterSet,
    answers: Answers,
) {
    let registry = Arc::clone(registry);
    let main = Arc::clone(&registry.main);
    main.submit(Box::new(MainThreadRequest { registry, message, characters, answers }));
}

/// The same, and waits until the request is answered. `send` gets the answers.
pub(crate) fn hand_over_and_wait(
    registry: &Arc<Registry>,
    message: Arc<HeldMessage>,
    characters: CharacterSet,
    send: &mut dyn FnMut(&[u8]),
) {
    let (sender, answered) = channel::<Vec<u8>>();
    // Without a receiver, nobody waits any more.
    let answers: Answers = Box::new(move |bytes| _ = sender.send(bytes.to_vec()));
    hand_over(registry, message, characters, answers);
    let mut wait_max = registry.main.wait_max();
    loop {
        match answered.recv_timeout(wait_max) {
            Ok(bytes) => send(&bytes),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                registry.main.refuse_late(Instant::now());
                // If it was not refused, its servant runs.
                wait_max = Duration::MAX;
            }
        }
    }
}
