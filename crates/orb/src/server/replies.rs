//! Replies on a connection that has a thread. It waits for its client only while that goes on taking them.

use std::io;
use std::sync::Arc;

use crate::budget::{Account, Budget, large_bytes};
use crate::framing::Framing;
use crate::owed::Owed;
use crate::transport::Stream;

/// Sends replies to one client.
#[derive(Debug)]
pub(super) struct Replies {
    framing: Framing,
    stream: Arc<Stream>,
    /// Who counts a reply that the socket does not take at once.
    account: Account,
    /// What the client is to take. Nothing while the socket takes everything.
    owed: Owed,
    /// Whether this message waits, or has waited.
    waits: bool,
}

impl Replies {
    pub fn new(framing: Framing, budget: &Arc<Budget>, stream: &Arc<Stream>) -> Self {
        let account = Account::new(budget, stream);
        Self { framing, stream: Arc::clone(stream), account, owed: Owed::default(), waits: false }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `TimedOut` if the client does not take it; `OutOfMemory` if others need its memory; those of the stream. A part of it
    /// may be sent.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let framing = self.framing;
        let sent = framing.each(message, |head, body| self.send_parts(message.len(), head, body));
        if std::mem::take(&mut self.waits) {
            self.owed.is_paid();
            // It is less than before.
            let _ = self.account.set(0);
        }
        sent
    }

    fn send_parts(&mut self, message_bytes: usize, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
        loop {
            let sent = self.stream.write_parts_now(head, body)?;
            let of_head = sent.min(head.len());
            (head, body) = (&head[of_head..], &body[sent - of_head..]);
            if head.is_empty() && body.is_empty() {
                return Ok(());
            }
            self.waits = true;
            self.account.set(large_bytes(message_bytes))?;
            if sent > 0 {
                self.account.moved();
                self.owed.progress(sent);
            }
            self.stream.wait_until_writable(self.owed.until(self.framing.message_time))?;
        }
    }
}
