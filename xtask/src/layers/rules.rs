//! The layers, as tables: to add a crate, a folder or a forbidden path, add a row.

/// Crates by folder under `crates/`, lowest first; those of one row do not name each other.
const CRATES: &[&[&str]] = &[
    &["topology", "lab-peers"],
    &["simachine"],
    &["sync"],
    &["mpscq"],
    &["afterwork"],
    &["capi", "top", "probes", "sim"],
    &["lab", "preload"],
];

/// Crates that reach the machine through `sync` alone.
const ABOVE_SYNC: &[&str] = &["mpscq", "afterwork", "capi", "preload"];

/// A folder of a crate, or a file at its root, and the folders of that crate that it may name.
type Folder = (&'static str, Below);

enum Below {
    Only(&'static [&'static str]),
    All,
}

/// What stands on pools, and on nothing of its own kind.
const ON_POOLS: Below = Below::Only(&[
    "wake",
    "workqueue/errands",
    "workqueue/item",
    "workqueue/observe",
    "workqueue/limit",
    "workqueue/pools",
]);

/// Crates whose folders are layers too. A folder in a folder may have a row of its own (`a/b`); without one it is part of
/// the folder that has.
const FOLDERS: &[(&str, &[Folder])] = &[
    (
        "afterwork",
        &[
            ("numbered", Below::Only(&[])),
            ("params", Below::Only(&[])),
            ("page", Below::Only(&[])),
            ("panics", Below::Only(&[])),
            ("trace", Below::Only(&[])),
            ("wake", Below::Only(&[])),
            ("rcu", Below::Only(&["wake"])),
            (
                "workqueue",
                Below::Only(&[
                    "workqueue/item",
                    "workqueue/observe",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/route",
                    "workqueue/queues",
                    "workqueue/flushing",
                    "workqueue/scope",
                    "workqueue/tasks",
                    "workqueue/time",
                    "workqueue/manage",
                    "workqueue/limit",
                    "workqueue/raw",
                    "wake",
                ]),
            ),
            ("workqueue/errands", Below::Only(&["wake"])),
            (
                "workqueue/item",
                Below::Only(&["wake", "workqueue/errands"]),
            ),
            ("workqueue/observe", Below::Only(&[])),
            (
                "workqueue/limit",
                Below::Only(&["wake", "workqueue/errands", "workqueue/observe"]),
            ),
            (
                "workqueue/pools",
                Below::Only(&[
                    "wake",
                    "workqueue/errands",
                    "workqueue/item",
                    "workqueue/observe",
                    "workqueue/limit",
                ]),
            ),
            ("workqueue/execute", ON_POOLS),
            ("workqueue/route", ON_POOLS),
            (
                "workqueue/queues",
                Below::Only(&[
                    "rcu",
                    "wake",
                    "workqueue/errands",
                    "workqueue/item",
                    "workqueue/observe",
                    "workqueue/limit",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/route",
                ]),
            ),
            (
                "workqueue/flushing",
                Below::Only(&[
                    "wake",
                    "workqueue/errands",
                    "workqueue/item",
                    "workqueue/observe",
                    "workqueue/limit",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/queues",
                ]),
            ),
            (
                "workqueue/scope",
                Below::Only(&[
                    "wake",
                    "workqueue/item",
                    "workqueue/limit",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/queues",
                ]),
            ),
            (
                "workqueue/time",
                Below::Only(&["rcu", "workqueue/execute", "workqueue/queues"]),
            ),
            (
                "workqueue/tasks",
                Below::Only(&[
                    "wake",
                    "workqueue/errands",
                    "workqueue/execute",
                    "workqueue/queues",
                ]),
            ),
            (
                "workqueue/raw",
                Below::Only(&[
                    "rcu",
                    "wake",
                    "workqueue/item",
                    "workqueue/limit",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/queues",
                ]),
            ),
            (
                "workqueue/manage",
                Below::Only(&[
                    "wake",
                    "workqueue/errands",
                    "workqueue/item",
                    "workqueue/observe",
                    "workqueue/pools",
                    "workqueue/execute",
                    "workqueue/route",
                    "workqueue/queues",
                ]),
            ),
            ("task_work", Below::Only(&["rcu", "wake"])),
            ("percpu", Below::Only(&["wake"])),
            ("observe", Below::All),
        ],
    ),
    (
        "lab",
        &[
            ("harness", Below::Only(&[])),
            ("output", Below::Only(&["harness"])),
            ("output/page", Below::Only(&["harness", "output"])),
            ("bench", Below::Only(&["harness", "output", "output/page"])),
            ("cli", Below::All),
            ("book", Below::Only(&[])),
        ],
    ),
];

/// Named by every folder of its crate: a small list, tunables, the page on which each shows itself, events, and the care for what users'
/// code panics with belong to no layer.
const FOR_ALL: &[(&str, &[&str])] = &[(
    "afterwork",
    &["numbered", "params", "page", "panics", "trace"],
)];

/// Files that may name each other in a circle.
pub const KNOT: usize = 5;

/// Folders that have a larger knot than [`KNOT`], and how large it is today. A row may only fall.
pub const KNOTS: &[(&str, usize)] = &[];

/// A path that only `sync` may name.
pub struct Door {
    /// Its parts; `std` stands for `core` and `alloc` too.
    path: &'static [&'static str],
    /// What below it is allowed all the same.
    except: &'static [&'static str],
    /// Whether test code may name it.
    pub free_in_tests: bool,
    /// What to name instead.
    pub instead: &'static str,
}

const DOORS: &[Door] = &[
    Door {
        path: &["std", "sync"],
        except: &[],
        free_in_tests: true,
        instead: "`sync`",
    },
    Door {
        path: &["std", "thread"],
        except: &[],
        free_in_tests: true,
        instead: "`sync::thread`",
    },
    Door {
        path: &["std", "thread_local"],
        except: &[],
        free_in_tests: true,
        instead: "`sync::thread_local!`",
    },
    Door {
        path: &["std", "time"],
        except: &["Duration"],
        free_in_tests: false,
        instead: "`sync::time`",
    },
    Door {
        path: &["std", "hint", "spin_loop"],
        except: &[],
        free_in_tests: true,
        instead: "`sync::hint`",
    },
    Door {
        path: &["std", "fs"],
        except: &[],
        free_in_tests: false,
        instead: "`topology`",
    },
    Door {
        path: &["std", "net"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`",
    },
    Door {
        path: &["libc"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`",
    },
    Door {
        path: &["rustix"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`",
    },
    Door {
        path: &["loom"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`, and models in tests/loom",
    },
    Door {
        path: &["shuttle"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`, and models in tests/shuttle",
    },
    Door {
        path: &["sync", "__loom"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`",
    },
    Door {
        path: &["sync", "__shuttle"],
        except: &[],
        free_in_tests: false,
        instead: "`sync`",
    },
];

/// Crates that a crate above `sync` may not depend on but for its tests.
pub const DOOR_CRATES: &[&str] = &[
    "libc",
    "rustix",
    "nix",
    "loom",
    "shuttle",
    "parking_lot",
    "atomic-waker",
];

/// Returns the rank of the crate in `crates/FOLDER`, 0 lowest; nothing when it has none.
pub fn rank(folder: &str) -> Option<usize> {
    CRATES.iter().position(|row| row.contains(&folder))
}

/// Returns the folder of one of our crates, by the name that code or a manifest uses for it.
pub fn our_crate(name: &str) -> Option<&'static str> {
    let short = name
        .strip_prefix("afterwork-")
        .or_else(|| name.strip_prefix("afterwork_"))
        .unwrap_or(name);
    CRATES
        .iter()
        .flat_map(|row| row.iter())
        .find(|folder| **folder == short)
        .copied()
}

/// Returns `true` if the crate in `crates/FOLDER` must go through `sync`.
pub fn is_above_sync(folder: &str) -> bool {
    ABOVE_SYNC.contains(&folder)
}

/// Returns the folders of a crate that are layers; nothing where they are not.
fn folders(krate: &str) -> Option<&'static [Folder]> {
    let row = FOLDERS.iter().find(|row| row.0 == krate)?;
    Some(row.1)
}

/// Returns `true` if the folders of a crate are layers.
pub fn has_folders(krate: &str) -> bool {
    folders(krate).is_some()
}

/// Returns the row that has what lies at `path` from the root of a crate: the longest, if there is one.
pub fn folder(krate: &str, path: &[String]) -> Option<&'static str> {
    let path = path.join("/") + "/";
    let rows = folders(krate)?.iter().map(|row| row.0);
    rows.filter(|name| {
        path.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('/'))
    })
    .max_by_key(|name| name.len())
}

/// Returns `true` if `folder` of a crate may name `other`.
pub fn folder_may_name(krate: &str, folder: &str, other: &str) -> bool {
    let is_for_all = |row: &(&str, &[&str])| row.0 == krate && row.1.contains(&other);
    folder == other
        || FOR_ALL.iter().any(is_for_all)
        || folders(krate).is_some_and(|rows| {
            rows.iter().any(|(name, below)| {
                *name == folder
                    && match below {
                        Below::Only(names) => names.contains(&other),
                        Below::All => true,
                    }
            })
        })
}

/// Returns the rule that forbids `path` above `sync`, if one does.
///
/// An import of a whole root (`use std as s`, `use std::*`) or of the parent of an exception (`use
/// std::time`) counts as forbidden: it would hide what is named later.
pub fn door(path: &[String], imported: bool) -> Option<&'static Door> {
    let mut parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let first = parts.first_mut()?;
    *first = match *first {
        "core" | "alloc" => "std",
        "afterwork_sync" => "sync",
        other => other,
    };
    if parts == ["thread_local"] {
        parts.insert(0, "std");
    }
    let whole_root = imported && (parts == ["std"] || parts == ["std", "*"]);
    DOORS.iter().find(|door| {
        let below = parts.strip_prefix(door.path);
        whole_root
            || below
                .is_some_and(|rest| !rest.first().is_some_and(|name| door.except.contains(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden(path: &str) -> bool {
        let parts: Vec<_> = path.split("::").map(str::to_string).collect();
        door(&parts, true).is_some()
    }

    #[test]
    fn every_road_past_sync_is_closed() {
        for path in [
            "std::sync::Mutex",
            "core::sync::atomic::Ordering",
            "alloc::sync::Arc",
            "std::sync",
            "std::thread::spawn",
            "thread_local",
            "std::time::Instant",
            "std::time::SystemTime",
            "std::time",
            "std::time::*",
            "core::hint::spin_loop",
            "libc::c_int",
            "rustix::thread::gettid",
            "loom::model",
            "shuttle::check_random",
            "sync::__loom::thread",
            "afterwork_sync::__shuttle",
            "std",
            "std::*",
            "core",
        ] {
            assert!(forbidden(path), "{path}");
        }
    }

    #[test]
    fn what_models_need_not_see_is_free() {
        for path in [
            "std::time::Duration",
            "core::time::Duration",
            "std::task::Context",
            "std::pin::Pin",
            "sync::atomic::AtomicU32",
            "sync::thread_local",
            "std::collections::HashMap",
            "std::cell::Cell",
            "std::hint::black_box",
            "topology::CpuId",
        ] {
            assert!(!forbidden(path), "{path}");
        }
    }

    #[test]
    fn ranks_follow_the_arrows() {
        let rank = |folder| rank(folder).unwrap();
        assert!(rank("topology") < rank("sync") && rank("sync") < rank("mpscq"));
        assert!(rank("mpscq") < rank("afterwork") && rank("afterwork") < rank("lab"));
        assert_eq!(rank("capi"), rank("top"));
    }

    #[test]
    fn crates_are_known_by_both_names() {
        assert_eq!(our_crate("sync"), Some("sync"));
        assert_eq!(our_crate("afterwork_sync"), Some("sync"));
        assert_eq!(our_crate("afterwork-topology"), Some("topology"));
        assert_eq!(our_crate("afterwork"), Some("afterwork"));
        assert_eq!(our_crate("rayon"), None);
    }

    #[test]
    fn folders_look_down_only() {
        let may = |folder, other| folder_may_name("afterwork", folder, other);
        assert!(may("task_work", "rcu") && !may("rcu", "task_work"));
        assert!(may("workqueue/queues", "rcu") && !may("workqueue/item", "rcu"));
        assert!(may("workqueue/pools", "workqueue/item"));
        assert!(!may("workqueue/item", "workqueue/pools") && !may("workqueue/pools", "workqueue"));
        assert!(!may("wake", "workqueue") && !may("rcu", "workqueue/queues"));
        assert!(may("observe", "percpu") && !may("percpu", "observe"));
        assert!(may("wake", "params") && !may("params", "wake"));
        assert!(may("rcu", "page") && !may("page", "rcu"));
        let may = |folder, other| folder_may_name("lab", folder, other);
        assert!(
            may("bench", "harness") && !may("harness", "output") && may("bench", "output/page")
        );
    }

    #[test]
    fn the_longest_row_has_a_file() {
        let row = |path: &str| {
            let path: Vec<String> = path.split('/').map(str::to_string).collect();
            folder("lab", &path)
        };
        assert_eq!(row("output/page/bars"), Some("output/page"));
        assert_eq!(row("output/pages"), Some("output"));
        assert_eq!(row("outputs"), None);
    }
}
