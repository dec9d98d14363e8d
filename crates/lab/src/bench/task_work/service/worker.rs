//! The threads that do the work on requests, and post what they finished home to the owner.

use afterwork::mailbox::{Mailbox, Poster};

use super::meter::Meter;
use super::ring::Buffer;

/// A message of a connection, on its way to a worker or home.
#[derive(Debug)]
pub struct Message {
    /// Whose it is.
    pub connection: usize,
    /// What it says.
    pub bytes: Buffer,
}

/// Does the work until no request will come, and returns what posting took.
pub fn work(mut requests: Mailbox<Message>, home: &Poster<Message>) -> Meter {
    /// Requests taken at once, before what is finished would have to wait for them.
    const DRAIN: usize = 16;
    let mut posts = Meter::default();
    while requests.wait(1).is_ok() {
        for mut message in requests.drain(DRAIN) {
            message.bytes.iter_mut().for_each(answer);
            // Refused when the owner has ended early; then nobody waits for it.
            posts.time(|| (1, home.post(message).is_ok()));
        }
    }
    posts
}

/// Turns a byte of a request into that of the response.
#[inline(always)]
pub fn answer(byte: &mut u8) {
    *byte = byte.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_answers_everything_and_ends() {
        let requests = Mailbox::new();
        let mut home = Mailbox::new();
        let poster = requests.poster();
        for connection in 0..40 {
            let bytes = vec![connection as u8; 3].into();
            poster.post(Message { connection, bytes }).unwrap();
        }
        drop(poster);
        assert_eq!(work(requests, &home.poster()).items(), 40);
        for (index, message) in home.drain(99).enumerate() {
            assert_eq!(message.connection, index);
            assert_eq!(*message.bytes, [index as u8 + 1; 3]);
        }
    }
}
