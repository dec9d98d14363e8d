//! The threads that process requests, and post the responses to the owner.

use afterwork::mailbox::{Mailbox, Poster};

use super::meter::Meter;
use super::ring::Buffer;

pub struct Message {
    pub connection: usize,
    pub bytes: Buffer,
}

/// Processes requests until their posters are dropped, and returns the cost of posting.
pub fn work(mut requests: Mailbox<Message>, home: &Poster<Message>) -> Meter {
    const DRAIN: usize = 16;
    let mut posts = Meter::default();
    while requests.wait(1).is_ok() {
        for mut message in requests.drain(DRAIN) {
            message.bytes.iter_mut().for_each(answer);
            // The post fails if the owner has exited early. In that case the response is not
            // needed.
            posts.time(|| (1, home.post(message).is_ok()));
        }
    }
    posts
}

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
        assert_eq!(work(requests, &home.poster()).items, 40);
        for (index, message) in home.drain(99).enumerate() {
            assert_eq!(message.connection, index);
            assert_eq!(*message.bytes, [index as u8 + 1; 3]);
        }
    }
}
