//! Readers of a cell, and a thread that replaces its value.

use crate::support::*;

/// A version whose creation, reads and drop loom tracks.
struct Version(Plain);

impl Version {
    fn new(number: u32) -> Self {
        let plain = Plain::default();
        plain.set(number);
        Self(plain)
    }
}

sync::on_drop!(Version, this => this.0.set(0));

type Cell = Arc<Rcu<Version, Domain>>;

fn cell() -> Cell {
    Arc::new(Rcu::new_in(Version::new(1), Domain::new()))
}

fn read(cell: &Cell) -> u32 {
    let guard = cell.read();
    cell.load(&guard).0.get()
}

fn replaced() {
    let cell = cell();
    spawn_with(cell.clone(), move |theirs| assert!(matches!(read(&theirs), 1 | 2)));
    drop(cell.replace_sync(Version::new(2)));
}

models! {
    fn a_cells_reader_sees_one_version_whole() =
        exhaustive(replaced).detects(["rcu cell: relaxed load", "rcu cell: relaxed swap"]);
}
