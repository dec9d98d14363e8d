//! Urgent and ordinary posts: each wakes the owner, and no lane hides the other or loses its order.

use crate::support::*;
use crate::task_work::receive_all;

fn poster(mailbox: &Mailbox<usize>, urgent: bool) -> Poster<usize> {
    let ordinary = mailbox.poster();
    if urgent { ordinary.urgent() } else { ordinary }
}

/// A poster for each entry of `lanes` opens its lane and posts an item while the owner runs.
fn all_are_received(lanes: &'static [bool], eager: bool, count: usize) {
    let mut mailbox = Careful::new(Mailbox::builder().keep(0).build());
    let threads: Vec<_> = lanes
        .iter()
        .map(|&urgent| {
            let ordinary = Careful::new(mailbox.poster());
            spawn(move || {
                let poster = if urgent { ordinary.urgent() } else { ordinary.clone() };
                let post = if eager { Poster::post } else { Poster::post_lazy };
                post(&poster, 0).unwrap();
                (ordinary, poster)
            })
        })
        .collect();
    let mut threads = Careful::new(threads);
    receive_all(&mut mailbox, lanes.len(), count);
    threads.drain(..).for_each(|it| drop(it.join().unwrap()));
}

fn lanes_keep_their_order() {
    let mut mailbox = Careful::new(Mailbox::builder().keep(0).build());
    let urgent = Careful::new(poster(&mailbox, true));
    let ordinary = Careful::new(poster(&mailbox, false));
    let thread = spawn(move || {
        (0..2).for_each(|number| urgent.post_lazy(number).unwrap());
        urgent
    });
    (10..12).for_each(|number| ordinary.post_lazy(number).unwrap());
    let mut next = [0, 10];
    while next != [2, 12] {
        mailbox.wait(1).unwrap();
        let item = mailbox.try_recv().unwrap();
        let lane = usize::from(item >= 10);
        assert_eq!(item, next[lane], "out of the order of its lane");
        next[lane] += 1;
    }
    drop(thread.join().unwrap());
    drop(ordinary);
}

/// More urgent items are posted than may be received before a waiting ordinary one.
fn an_ordinary_item_waits() {
    let mut mailbox = Mailbox::builder().keep(0).build();
    poster(&mailbox, false).post_lazy(10).unwrap();
    let urgent = poster(&mailbox, true);
    (0..3).for_each(|number| urgent.post_lazy(number).unwrap());
    assert!(mailbox.drain(4).eq([0, 1, 10, 2]), "it missed its turn");
}

fn the_owner_ends() {
    let alive = Arc::new(());
    let mailbox = Mailbox::builder().keep(0).build();
    let (urgent, item) = (mailbox.poster().urgent(), alive.clone());
    let thread = spawn(move || {
        drop(urgent.post_lazy(item));
        urgent
    });
    drop(mailbox);
    let urgent = thread.join().unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
    drop(urgent);
}

models! {
    /// Two lazy posts enter the urgent lane. The second is complete but hidden until the first is.
    fn incomplete_push_in_one_lane_does_not_end_the_other() =
        bounded(2, || all_are_received(&[true, true], false, 2))
            .deadlocks_with(["lanes: a mid-push is passed over"]);
    fn urgent_item_does_not_remain_in_a_dead_queue() = bounded(3, the_owner_ends);
    fn no_urgent_post_is_missed_by_a_sleeping_owner() =
        bounded(3, || all_are_received(&[true], true, 1))
            .deadlocks_with(["lanes: opened after the post", "lanes: one is counted"]),
        bounded(1, || all_are_received(&[true, false], true, 1)),
        bounded(1, || all_are_received(&[true, false], false, 2));
    fn each_lane_keeps_its_order() = bounded(2, lanes_keep_their_order);
    fn an_ordinary_item_has_its_turn() =
        bounded(1, an_ordinary_item_waits).detects(["lanes: ordinary items get no turn"]);
}
