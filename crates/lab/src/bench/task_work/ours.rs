//! Mailboxes as paths, and the ways in which their owners wait.

use std::time::Duration;

use afterwork::mailbox::{Mailbox, Poster};

use super::wake::{Post, Receive};

const DRAIN: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub count: usize,
    pub cap: Option<Duration>,
}

pub struct Owner {
    mailbox: Mailbox<u64>,
    wait: Wait,
}

pub struct MailPost {
    poster: Poster<u64>,
    lazy: bool,
}

impl Wait {
    pub fn open(self, mailbox: Mailbox<u64>) -> (MailPost, Owner) {
        let post = MailPost { poster: mailbox.poster(), lazy: self.count > 1 };
        (post, Owner { mailbox, wait: self })
    }
}

impl Post for MailPost {
    #[inline(always)]
    fn post(&mut self, item: u64) {
        let posted = if self.lazy { self.poster.post_lazy(item) } else { self.poster.post(item) };
        posted.expect("the owner is there");
    }

    fn post_urgent(&mut self, item: u64) {
        self.poster.post(item).expect("the owner is there");
    }
}

impl Receive for Owner {
    #[inline(always)]
    fn receive(&mut self, take: impl FnMut(u64)) -> bool {
        let Wait { count, cap } = self.wait;
        let waited = match cap {
            None => self.mailbox.wait(count),
            // After a timeout, the items that have arrived are also drained.
            Some(cap) => self.mailbox.wait_timeout(count, cap).map(|_full| ()),
        };
        self.mailbox.drain(DRAIN).for_each(take);
        waited.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_receives_everything_in_order_before_the_end() {
        let waits = [(1, None), (8, None), (8, Some(Duration::from_micros(1)))];
        for (count, cap) in waits {
            let (mut post, mut owner) = Wait { count, cap }.open(Mailbox::new());
            (0..10).for_each(|item| post.post(item));
            post.post_urgent(10);
            drop(post);
            let mut received = Vec::new();
            while owner.receive(|item| received.push(item)) {}
            assert_eq!(received, (0..=10).collect::<Vec<_>>());
        }
    }
}
