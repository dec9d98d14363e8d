//! A shared item is in one queue at a time, and its link is transferred without a race.

use afterwork_mpscq::{Pop, Queue, Shared};
use sync::cell::UnsafeCell;
use sync::{Arc, models};

use crate::support::{exhaustive, must_fail, spawn};

/// Represents the link: the holder of the claim writes it.
struct Guarded(UnsafeCell<usize>);

// SAFETY: the cell is written only under the claim. Loom checks that this is enough.
unsafe impl Sync for Guarded {}

fn write(item: &Shared<Guarded>) {
    // SAFETY: the caller has the claim.
    item.0.with_mut(|contents| unsafe { *contents += 1 });
}

/// One thread pops the item and releases the claim; another tries to claim and push it again.
fn claim_moves_between_threads() {
    let queue = Arc::new(Queue::<Shared<Guarded>>::new());
    let item = Arc::new(Shared::new(Guarded(UnsafeCell::new(0))));
    queue.push(Shared::claim(&item).unwrap());
    let pusher = spawn({
        let (queue, item) = (queue.clone(), item.clone());
        move || {
            if let Some(claim) = Shared::claim(&item) {
                write(&claim);
                queue.push(claim);
            }
        }
    });
    let mut consumer = queue.try_consumer().unwrap();
    match consumer.pop() {
        Pop::Item(claim) => {
            write(&claim);
            drop(claim);
        }
        nothing => panic!("lost: {:?}", matches!(nothing, Pop::Empty)),
    }
    pusher.join().unwrap();
    if let Pop::Item(claim) = consumer.pop() {
        write(&claim);
    }
}

models! {
    fn claim_transfers_the_list_link() = exhaustive(claim_moves_between_threads);
    fn shared_claim_needs_acquire() =
        must_fail("shared: relaxed claim", claim_moves_between_threads);
    fn shared_release_needs_release() =
        must_fail("shared: relaxed release", claim_moves_between_threads);
}
