//! Calls that wait for what comes back, and oneway requests.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{RequestId, Response, Target};
use punctual_giop::{ByteOrder, Encoder, SystemException, Tagged};

use super::Object;
use super::ways::{call_named, on_first_way};
use crate::call::{Call, Write};
use crate::exception::shut_down;
use crate::outcome::Outcome;
use crate::route::{Way, call_local, call_remote, locate_local, send_message};

impl Object {
    /// Calls, and follows the object to where it is.
    pub(super) fn invoke(
        &self,
        operation: &str,
        response: Response,
        write: Write<'_>,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<(), SystemException> {
        let (deadline, contexts) = (self.deadline(), self.contexts());
        self.wherever_it_is(|route| {
            on_first_way(route, |way| match way {
                Way::Local(key) => {
                    let target = Target::Key(key);
                    let call = self.to_call(&target, operation, response, &contexts, write);
                    call_local(&self.0.core, &call, read)
                }
                Way::Remote(peer, named) => call_named(route, named, |target| {
                    let call = self.to_call(target, operation, response, &contexts, write);
                    call_remote(peer, &call, deadline, read)
                }),
            })
        })
    }

    /// Asks where the object is. `OBJECT_NOT_EXIST` if it is nowhere.
    pub(super) fn ask_where(&self) -> Result<(), SystemException> {
        let (deadline, mut answer) = (self.deadline(), Ok(()));
        let mut read = |outcome: Outcome<'_>| answer = outcome.end();
        self.wherever_it_is(|route| {
            on_first_way(route, |way| match way {
                Way::Local(key) => Ok(locate_local(&self.0.core, key, &mut read)),
                Way::Remote(peer, named) => call_named(route, named, |target| {
                    call_remote(peer, &Call::locate(target), deadline, &mut read)
                }),
            })
        })?;
        answer
    }

    /// Waits until requests that nobody waits for ([`crate::SyncScope::None`]) are sent, or cannot be: for a program that ends
    /// behind them.
    pub fn flush(&self) {
        let forward = self.forward();
        let route = forward.as_deref().unwrap_or(&self.0.route);
        for (_, way) in route.ways() {
            let Way::Remote(peer, _) = way else { continue };
            let (done, is_done) = sync_channel(1);
            // They are sent one after the other.
            let asked = peer.later.send(Box::new(move || {
                let _ = done.send(());
            }));
            let _ = asked.map(|()| is_done.recv());
        }
    }

    /// Lets another thread send a request. `false` if the object is in this process, so that none is sent.
    pub(super) fn send_later(&self, operation: &str, write: Write<'_>) -> Result<bool, SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        let forward = self.forward();
        let route = forward.as_deref().unwrap_or(&self.0.route);
        let Some((_, Way::Remote(peer, named))) = route.ways().next() else { return Ok(false) };
        let mut to = Encoder::new(ByteOrder::NATIVE, peer.version);
        to.set_characters(peer.characters());
        let (target, contexts) = (route.target(named), self.contexts());
        let call = self.to_call(&target, operation, Response::None, &contexts, write);
        let chosen = peer.chosen_context();
        let first = chosen.as_ref().map(|data| Tagged { id: CODE_SETS, data });
        call.encode(RequestId(0), first.as_slice(), &mut to)?;
        let (of_thread, timeout) = (Arc::clone(peer), self.0.settings.timeout);
        peer.later.send(Box::new(move || {
            // Whether it arrives is not known.
            let _ = send_message(&of_thread, to.as_bytes(), timeout.map(|timeout| Instant::now() + timeout));
        }))?;
        Ok(true)
    }
}
