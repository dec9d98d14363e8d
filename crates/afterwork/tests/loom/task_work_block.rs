//! Blocks of items between a poster and the owner: adding, closing and recycling.
//!
//! A block has two slots in these models. Loom checks the slots, and a word in each item, for
//! races.

use crate::support::*;

/// An item. Reading its contents too early is a data race.
struct Item {
    number: u32,
    contents: Box<Plain>,
}

fn post(poster: &Poster<Item>, number: u32) {
    let contents = Box::new(Plain::default());
    contents.set(number);
    poster.post_lazy(Item { number, contents }).ok().unwrap();
}

/// Receives one item, if there is one. It must be the next of its poster: number `10 * from + nth`.
fn receive(mailbox: &mut Mailbox<Item>, got: &mut [VecDeque<u32>]) -> bool {
    let Ok(item) = mailbox.try_recv() else {
        return false;
    };
    assert_eq!(item.contents.get(), item.number);
    let next = got[item.number as usize / 10].pop_front();
    assert_eq!(next, Some(item.number), "doubled, lost or out of order");
    true
}

fn receive_rest(mailbox: &mut Mailbox<Item>, got: &mut [VecDeque<u32>]) {
    while receive(mailbox, got) {}
    assert!(got.iter().all(VecDeque::is_empty), "an item is lost");
}

fn numbers<const N: usize>(all: [&[u32]; N]) -> [VecDeque<u32>; N] {
    all.map(|numbers| numbers.iter().copied().collect())
}

fn two_in_a_block() {
    let mut mailbox = Mailbox::builder().keep(0).build();
    let poster = mailbox.poster();
    let thread = spawn(move || {
        post(&poster, 0);
        post(&poster, 1);
        poster
    });
    let mut got = numbers([&[0, 1]]);
    (0..2).for_each(|_| _ = receive(&mut mailbox, &mut got));
    drop(thread.join().unwrap());
    receive_rest(&mut mailbox, &mut got);
}

/// Another poster's post makes the owner close the block of the first, which uses it again or ends.
fn block_is_released(nr_posts: u32, nr_looks: u32) {
    let mut mailbox = Mailbox::builder().keep(0).build();
    let (one, other) = (mailbox.poster(), mailbox.poster());
    // One thread makes all posts: a private store belongs to the first thread that posts.
    let thread = spawn(move || {
        for number in 0..nr_posts {
            post(&one, number);
        }
    });
    post(&other, 10);
    let all: Vec<u32> = (0..nr_posts).collect();
    let mut got = numbers([&all, &[10]]);
    (0..nr_looks).for_each(|_| _ = receive(&mut mailbox, &mut got));
    thread.join().unwrap();
    receive_rest(&mut mailbox, &mut got);
}

fn two_posters_take_turns() {
    let mut mailbox = Mailbox::builder().keep(0).build();
    let posters = [mailbox.poster(), mailbox.poster()];
    for (number, from) in [0, 1, 0, 0, 1].into_iter().enumerate() {
        posters[from].post_lazy(number).unwrap();
    }
    assert!(mailbox.drain(9).eq(0..5), "out of order");
}

/// Two posters of one thread alternate, so that one leaves more blocks than it remembers.
fn more_blocks_than_are_recorded(nr_looks: u32) {
    let mut mailbox = Mailbox::builder().keep(2).build();
    let posters = [mailbox.poster(), mailbox.poster()];
    let thread = spawn(move || {
        for number in [0, 10, 1, 11, 2] {
            post(&posters[number as usize / 10], number);
        }
    });
    let mut got = numbers([&[0, 1, 2], &[10, 11]]);
    (0..nr_looks).for_each(|_| _ = receive(&mut mailbox, &mut got));
    thread.join().unwrap();
    receive_rest(&mut mailbox, &mut got);
}

models! {
    fn an_added_item_is_whole() =
        exhaustive(two_in_a_block).detects(["block: add without release", "block: relaxed peek"]);
    fn block_is_reused() =
        exhaustive(|| block_is_released(1, 2)),
        exhaustive(|| block_is_released(2, 3)).detects([
            "block: add to a closed block",
            "block: relaxed close",
            "block: relaxed take back",
            "block: add without acquire",
        ]),
        bounded(3, || block_is_released(3, 3));
    fn unrecorded_block_belongs_to_the_owner() =
        bounded(2, || more_blocks_than_are_recorded(2)),
        bounded(2, || more_blocks_than_are_recorded(4));
    fn posts_that_follow_each_other_are_received_in_that_order() =
        exhaustive(two_posters_take_turns).detects(["block: add behind others"]);
}
