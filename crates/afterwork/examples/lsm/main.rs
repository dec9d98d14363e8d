//! A small storage engine, an LSM tree, that does its background work on queues.
//!
//! | work | method |
//! |---|---|
//! | syncing the log | one delayed item; writers that flush it share an fsync |
//! | flushing full in-memory tables | an ordered queue with `with_rescuer` and a capacity of two |
//! | stalling writers while flushes are behind | writers wait in `reserve` |
//! | compaction | `max_active` and a capacity of one; the waiting compaction covers all tables |
//! | versions | `Rcu`, whose readers may sleep; the last reader of a table deletes its file |
//!
//! `db.rs` is the engine. `table.rs` reads and writes files of sorted records, and does not use the
//! library.
//!
//! `cargo run --release --example lsm -- [KEYS [WRITERS]]`

mod db;
mod table;

use std::error::Error;
use std::sync::Arc;
use std::thread;

use db::Db;

type Failure = Box<dyn Error + Send + Sync>;

const NR_ROUNDS: u64 = 3;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_keys = numbers.next().transpose()?.unwrap_or(200_000);
    let nr_writers = numbers.next().transpose()?.unwrap_or(4);
    run(nr_keys, nr_writers)
}

/// Writes `nr_keys` keys three times and reads them at the same time. Then reads all keys, before
/// and after a restart.
pub fn run(nr_keys: u64, nr_writers: u64) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    thread::scope(|scope| -> Result<(), Failure> {
        let keys = |writer| (writer..nr_keys).step_by(nr_writers as usize);
        let start = |writer| {
            let (db, keys) = (&db, keys(writer));
            scope.spawn(move || write(db, keys))
        };
        let writers: Vec<_> = (0..nr_writers).map(start).collect();
        // A key's value never becomes older.
        let mut seen = vec![0; nr_keys as usize];
        let some_write = || writers.iter().any(|it| !it.is_finished());
        for key in (0..nr_keys).cycle().take_while(|_| some_write()) {
            let found = db.get(key)?.unwrap_or(0);
            assert!(found >= seen[key as usize], "key {key} has an older value");
            seen[key as usize] = found;
        }
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        Ok(())
    })?;
    db.settle()?;
    println!("{} writes, {db}", NR_ROUNDS * nr_keys);

    verify(&db, nr_keys)?;
    db.check_files()?;
    verify(&db, nr_keys)?;
    drop(db);
    verify(&*Db::open(dir.path())?, nr_keys)
}

/// Returns the value of a key, which grows with the round.
fn value(key: u64, round: u64) -> u64 {
    key << 8 | round
}

fn write(db: &Arc<Db>, keys: impl Iterator<Item = u64> + Clone) -> Result<(), Failure> {
    for round in 1..=NR_ROUNDS {
        for key in keys.clone() {
            // Every hundredth record is on disk before the next one is written.
            db.put(key, value(key, round), key % 100 == 0)?;
        }
    }
    Ok(())
}

fn verify(db: &Db, nr_keys: u64) -> Result<(), Failure> {
    for key in 0..nr_keys {
        assert_eq!(db.get(key)?, Some(value(key, NR_ROUNDS)), "key {key}");
    }
    Ok(())
}
