//! Tests of mailboxes in a child of `fork`, while a poster of the parent is in the middle of a
//! post.

use std::mem::ManuallyDrop;

use base::internal::wake::lane::Lane;
use sync::fork;

use super::*;

#[test]
#[cfg_attr(miri, ignore = "no fork")]
fn a_child_does_not_wait_for_a_post_that_was_under_way() {
    for lane in [Lane::Ordinary, Lane::Urgent] {
        let mut mailbox = Mailbox::<u32>::new();
        let poster = match lane {
            Lane::Ordinary => mailbox.poster(),
            Lane::Urgent => mailbox.poster().urgent(),
        };
        poster.post(1).unwrap();
        mailbox.shared.inbox.hold_up(lane);
        assert_eq!(mailbox.try_recv(), Err(TryRecvError::MidPush));
        // The parent would wait for the post, so only the child drops the mailbox.
        let both = ManuallyDrop::new((mailbox, poster));
        let in_child = move || {
            let (mut mailbox, poster) = ManuallyDrop::into_inner(both);
            assert_eq!(mailbox.try_recv(), Err(TryRecvError::Closed));
            assert_eq!(mailbox.wait(1), Err(Closed));
            let other = match lane {
                Lane::Ordinary => mailbox.poster().urgent(),
                Lane::Urgent => mailbox.poster(),
            };
            other.post(2).unwrap();
            assert_eq!(mailbox.wait(9), Ok(()));
            assert_eq!(mailbox.try_recv(), Ok(2));
            assert_eq!(mailbox.wait(9), Err(Closed));
            drop((mailbox, poster));
            0
        };
        // SAFETY: the child waits for no thread.
        assert_eq!(unsafe { fork::in_child(in_child) }, Some(0));
    }
}
