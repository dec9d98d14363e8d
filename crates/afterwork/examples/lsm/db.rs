//! The engine.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, mem};

use afterwork::rcu::Rcu;
use afterwork::rcu::srcu::Domain;
use afterwork::workqueue::{DelayedWork, TaskOptions, Workqueue, block_on, blocking};

use super::Failure;
use super::table::{self, Records, Table};

/// The number of records at which an in-memory table is flushed.
const FULL: usize = 1000;
/// The number of files that triggers a compaction.
const MANY: usize = 4;
/// The maximum time for which a record is in the log but not on disk.
const LAZY: Duration = Duration::from_millis(1);

pub struct Db {
    dir: PathBuf,
    active: Arc<Mutex<Active>>,
    version: Rcu<Version, Domain>,
    readers: Domain,
    /// Syncs the log of the active table.
    sync: DelayedWork,
    syncing: Workqueue,
    flushing: Workqueue,
    compacting: Workqueue,
    nr_syncs: Arc<AtomicU64>,
    nr_stalls: AtomicU64,
}

/// An in-memory table and its log.
struct Active {
    number: u64,
    log: File,
    records: Records,
}

/// All tables except the active one, the oldest first.
#[derive(Clone)]
struct Version {
    /// Full tables that are not on disk yet.
    frozen: Vec<Arc<Active>>,
    tables: Vec<Arc<Table>>,
}

impl Active {
    fn create(dir: &Path, number: u64) -> io::Result<Self> {
        Ok(Self {
            number,
            log: File::create(table::path_of(dir, (number, 0), "log"))?,
            records: Records::new(),
        })
    }
}

impl Db {
    pub fn open(dir: &Path) -> Result<Arc<Self>, Failure> {
        // Logs of in-memory tables become table files.
        for name in table::list(dir, "log")? {
            let log = table::path_of(dir, name, "log");
            Table::write(dir, name, &table::read(&log)?)?;
            fs::remove_file(log)?;
        }
        let mut tables = Vec::new();
        for name in table::list(dir, "table")? {
            tables.push(Arc::new(Table::open(dir, name)?));
        }
        let number = tables.last().map_or(0, |table| table.name.0 + 1);
        let active = Arc::new(Mutex::new(Active::create(dir, number)?));
        let (readers, nr_syncs) = (Domain::new(), Arc::new(AtomicU64::new(0)));
        let (written, count) = (active.clone(), nr_syncs.clone());
        let sync = DelayedWork::new(move || {
            let log = written.lock().unwrap().log.try_clone();
            blocking(|| log?.sync_data()).expect("the disk takes the log");
            count.fetch_add(1, Relaxed);
        });
        let frozen = Vec::new();
        let flushing = Workqueue::builder("lsm flush").ordered().with_rescuer();
        let compacting = Workqueue::builder("lsm compact").max_active(1);
        Ok(Arc::new(Self {
            dir: dir.into(),
            active,
            version: Rcu::new_in(Version { frozen, tables }, readers.clone()),
            readers,
            sync,
            syncing: Workqueue::builder("lsm sync").with_rescuer().build()?,
            flushing: flushing.capacity(2).build()?,
            compacting: compacting.capacity(1).build()?,
            nr_syncs,
            nr_stalls: AtomicU64::new(0),
        }))
    }

    pub fn get(&self, key: u64) -> io::Result<Option<u64>> {
        // The active table is checked first, because a full table is added to the version before a
        // new active table replaces it.
        if let Some(value) = self.active.lock().unwrap().records.get(&key) {
            return Ok(Some(*value));
        }
        let guard = self.version.read();
        let version = self.version.load(&guard);
        let mut frozen = version.frozen.iter().rev();
        if let Some(value) = frozen.find_map(|full| full.records.get(&key)) {
            return Ok(Some(*value));
        }
        for table in version.tables.iter().rev() {
            if let Some(value) = table.get(key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Writes a record. If `is_urgent`, returns once it is on disk.
    pub fn put(self: &Arc<Self>, key: u64, value: u64, is_urgent: bool) -> Result<(), Failure> {
        let mut active = self.active.lock().unwrap();
        while active.records.len() >= FULL {
            drop(active);
            let permit = self.flushing.task().try_reserve().unwrap_or_else(|| {
                self.nr_stalls.fetch_add(1, Relaxed);
                block_on(self.flushing.task().reserve())
            });
            active = self.active.lock().unwrap();
            // Another writer may have frozen the table.
            if active.records.len() >= FULL {
                self.freeze(&mut active, permit)?;
            }
        }
        active.log.write_all(&table::encode(key, value))?;
        active.records.insert(key, value);
        drop(active);
        // If the item is already armed, that sync includes this record.
        self.syncing.enqueue_after(&self.sync, LAZY);
        if is_urgent {
            self.sync.flush()?;
        }
        Ok(())
    }

    /// Replaces the `active` table with an empty one, and queues the flush of the old one.
    fn freeze(
        self: &Arc<Self>,
        active: &mut Active,
        permit: TaskOptions<'_>,
    ) -> Result<(), Failure> {
        let next = Active::create(&self.dir, active.number + 1)?;
        active.log.sync_data()?;
        let full = Arc::new(mem::replace(active, next));
        self.change(|version| version.frozen.push(full.clone()));
        let db = self.clone();
        // The lock of the active table is held, so flushes are queued in the order of the tables.
        permit.spawn_detached(move || db.flush(&full).expect("the disk takes a table"))?;
        Ok(())
    }

    fn flush(self: &Arc<Self>, full: &Arc<Active>) -> io::Result<()> {
        let name = (full.number, 0);
        let table = Arc::new(blocking(|| Table::write(&self.dir, name, &full.records))?);
        let mut nr_tables = 0;
        self.change(|version| {
            version.frozen.retain(|other| !Arc::ptr_eq(other, full));
            version.tables.push(table.clone());
            nr_tables = version.tables.len();
        });
        fs::remove_file(table::path_of(&self.dir, name, "log"))?;
        if nr_tables >= MANY {
            let db = self.clone();
            let compact = move || db.compact().expect("the disk takes a table");
            // If the queue is full, the compaction that waits will include this table.
            let _ = self.compacting.try_spawn(compact);
        }
        Ok(())
    }

    /// Merges all tables into one.
    fn compact(&self) -> io::Result<()> {
        let inputs = self.tables();
        let Some(last) = inputs.last() else {
            return Ok(());
        };
        let mut records = Records::new();
        for table in &inputs {
            records.extend(blocking(|| table.records())?);
        }
        let name = (last.name.0, last.name.1 + 1);
        let table = Arc::new(blocking(|| Table::write(&self.dir, name, &records))?);
        self.change(|version| _ = version.tables.splice(..inputs.len(), [table.clone()]));
        // Readers may still use the tables. The last reader deletes the files.
        inputs.iter().for_each(|table| table.retire());
        Ok(())
    }

    /// Publishes a changed copy of the version.
    fn change(&self, mut change: impl FnMut(&mut Version)) {
        self.version.update(|version| {
            let mut version = version.clone();
            change(&mut version);
            version
        });
    }

    fn tables(&self) -> Vec<Arc<Table>> {
        self.version.load(&self.version.read()).tables.clone()
    }

    /// Waits until all work is done and only files of the current version are left.
    pub fn settle(&self) -> Result<(), Failure> {
        self.sync.flush()?;
        self.flushing.drain()?;
        self.compacting.drain()?;
        self.readers.barrier();
        assert_eq!(table::list(&self.dir, "table")?.len(), self.tables().len());
        assert_eq!(table::list(&self.dir, "log")?.len(), 1);
        Ok(())
    }

    /// Compacts while a reader uses the old version, which must keep its files.
    pub fn check_files(&self) -> Result<(), Failure> {
        let guard = self.version.read();
        let version = self.version.load(&guard);
        let paths: Vec<_> = version.tables.iter().map(|it| it.path.clone()).collect();
        self.compact()?;
        assert!(paths.iter().all(|path| path.exists()));
        drop(guard);
        self.readers.barrier();
        assert!(paths.iter().all(|path| !path.exists()));
        Ok(())
    }
}

impl fmt::Display for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (syncs, stalls) = (self.nr_syncs.load(Relaxed), self.nr_stalls.load(Relaxed));
        write!(f, "{syncs} fsyncs of the log, {stalls} stalls of writers")
    }
}
