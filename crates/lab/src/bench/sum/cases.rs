//! The case: a tree, and who sums it.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Instant;

use clap::Args;
use top::exit::Stop;
use top::talk::say;

use super::peers;
use super::sums;
use super::tree::Tree;
use crate::bench::settings::{Menu, Settings, count};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::{Metric, NS_PER_US, higher, lower};
use crate::harness::switches::Usage;

const BENCH: &str = "sum";
const TREE: &str = "tree";
const COLD: &str = "tree-cold";

/// What there is to measure, and against whom.
pub const MENU: Menu = Menu {
    cases: &[TREE, COLD],
    peers: &peers::NAMES,
};

/// What to sum, and against whom.
#[derive(Args, Clone, Debug, Default)]
pub struct SumBenchArgs {
    /// Files of the tree [default: 20000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>)]
    pub files: Option<usize>,

    /// Mean size of a file, in kilobytes of 1024 bytes [default: 100]
    #[arg(long, value_name = "KB", value_parser = count::<1_000_000>)]
    pub mean_kb: Option<usize>,
}

/// The example: items read and hash.
const PLAIN: &str = "plain";

const FILES: usize = 20_000;
const FILES_QUICK: usize = 2_000;
/// A disk is slower than memory by far.
const COLD_FILES: usize = 4_000;
const COLD_FILES_QUICK: usize = 1_000;
const MEAN_KB: usize = 100;
const KB: usize = 1024;

/// Threads a CPU of whoever has more than CPUs.
const MANY: usize = 8;

const BYTES_PER_S: &str = "bytes_per_s";

const METRICS: &[Metric] = &[
    higher(BYTES_PER_S, "B/s", ("", "GB/s"), 1e9),
    higher("files_per_s", "files/s", ("", "kfiles/s"), 1e3),
    lower("cpu_per_file", "ns/item", ("", "CPUµs/file"), NS_PER_US),
];

/// Makes the cases that `args` ask for.
#[must_use]
pub fn cases(args: &SumBenchArgs, settings: &Settings) -> Vec<Case> {
    settings.make(MENU, |name| match name {
        TREE => Some(tree(name, Cache::Warm, args, settings)),
        _ => can_be_cold().then(|| tree(name, Cache::Cold, args, settings)),
    })
}

/// Whether what the files hold is in memory when a run begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Warm,
    Cold,
}

/// How often it is tried to drop a file before it is said to stay. A guess.
const NR_DROPS: usize = 20;

/// Tries it with a small tree, for some file systems are nothing but memory.
fn can_be_cold() -> bool {
    // Several times: a page at which the kernel is working at that moment stays.
    let try_it = |tree: Tree| {
        let mut tries = (0..NR_DROPS).map(|_| tree.drop_pages());
        tries
            .find(|it| !matches!(it, Ok(false)))
            .unwrap_or(Ok(false))
    };
    let gone = Tree::make(1, KB, 0).and_then(try_it);
    let why = match gone {
        Ok(true) => return true,
        Ok(false) => "they stay in memory".to_string(),
        Err(error) => error.to_string(),
    };
    say(format_args!(
        "{COLD} left out, files of the temporary directory cannot be dropped from the cache: {why}"
    ));
    false
}

fn tree(name: &'static str, cache: Cache, args: &SumBenchArgs, settings: &Settings) -> Case {
    let nr_files = match cache {
        Cache::Warm => settings.size(args.files, FILES, FILES_QUICK),
        Cache::Cold => settings.size(args.files, COLD_FILES, COLD_FILES_QUICK),
    };
    let mean = args.mean_kb.unwrap_or(MEAN_KB) * KB;
    let jobs = settings.cpus.len();
    let tree = Lazy {
        nr_files,
        mean,
        cache,
        tree: Rc::default(),
    };
    let rayon = |threads| move |tree: &Tree| Ok(peers::rayon(tree.root(), threads)?.len());
    let mut variants = vec![
        Variant::ours(PLAIN, tree.run(ours)),
        Variant::peer(peers::RAYON, tree.run(rayon(jobs))),
    ];
    // Who is given the files saves the walk; who has more threads reads more files at once.
    variants.push(match cache {
        Cache::Warm => Variant::peer(
            peers::RAYON_LIST,
            tree.run(move |tree| Ok(peers::rayon_list(&tree.files, jobs)?.len())),
        ),
        Cache::Cold => Variant::peer(peers::RAYON_MANY, tree.run(rayon(jobs * MANY))),
    });
    if peers::has_xargs() {
        variants.push(Variant::peer(
            peers::XARGS,
            tree.run(move |tree| peers::xargs(&tree.files, jobs)),
        ));
    } else {
        say("there is no xargs or no sha256sum: left out");
    }
    Case {
        bench: BENCH,
        name,
        about: format!(
            "{nr_files} files of {} KB on average, {}; {jobs} workers",
            mean / KB,
            match cache {
                Cache::Warm => "in the page cache",
                Cache::Cold => "dropped from the page cache before each run",
            }
        ),
        metrics: METRICS,
        headline: BYTES_PER_S,
        variants,
        claims: claims(cache),
    }
}

fn claims(cache: Cache) -> Vec<Claim> {
    let claim = |against: &str, bound: Option<Bound>| {
        let claim = Claim::of(PLAIN, "", BYTES_PER_S, against).keeps(bound);
        claim.in_words(format!("bytes/s of {PLAIN}"))
    };
    let when_warm = (cache == Cache::Warm).then_some(Bound::AtLeast(1.0));
    let other = match cache {
        Cache::Warm => peers::RAYON_LIST,
        Cache::Cold => peers::RAYON_MANY,
    };
    vec![
        claim(peers::XARGS, when_warm),
        claim(peers::RAYON, when_warm),
        claim(other, None),
    ]
}

/// A tree that is made when the first variant needs it, and shared by all.
#[derive(Clone)]
struct Lazy {
    nr_files: usize,
    mean: usize,
    cache: Cache,
    tree: Rc<OnceCell<Tree>>,
}

impl Lazy {
    fn get(&self) -> Result<&Tree, Stop> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let made = Tree::make(self.nr_files, self.mean, fastrand::u64(..));
        let made = made.map_err(|error| Stop::because("cannot make a tree to sum", error))?;
        Ok(self.tree.get_or_init(|| made))
    }

    /// Times a way to sum the tree; it returns how many files it summed.
    fn run(
        &self,
        sum: impl Fn(&Tree) -> Result<usize, Stop> + 'static,
    ) -> impl FnMut() -> Result<Option<Sample>, Stop> + 'static {
        let lazy = self.clone();
        move || {
            let tree = lazy.get()?;
            if lazy.cache == Cache::Cold {
                let dropped = tree.drop_pages();
                dropped.map_err(|error| Stop::because("cannot empty the page cache", error))?;
            }
            let unmeasured =
                |error| Stop::because("cannot read the counters of this process", error);
            let before = Usage::now().map_err(unmeasured)?;
            let start = Instant::now();
            let nr_summed = sum(tree)?;
            let took = start.elapsed().as_secs_f64();
            let spent = Usage::now().map_err(unmeasured)?.since(&before);
            if nr_summed != tree.files.len() {
                return Err(Stop::CouldNotRun(format!(
                    "{nr_summed} of {} files were summed",
                    tree.files.len()
                )));
            }
            let mut sample = Sample::default();
            sample.set(BYTES_PER_S, tree.bytes as f64 / took);
            sample.set("files_per_s", nr_summed as f64 / took);
            sample.set("cpu_per_file", spent.cpu_ns as f64 / nr_summed as f64);
            Ok(Some(sample))
        }
    }
}

/// Sums the tree as the example does, but for printing.
fn ours(tree: &Tree) -> Result<usize, Stop> {
    let mut nr_summed = 0;
    let summed = sums::sum(&[tree.root().into()], |summed| {
        nr_summed += usize::from(summed.sum.is_ok() && summed.path.starts_with(tree.root()));
        Ok(())
    });
    summed.map_err(|error| Stop::because("cannot sum the tree", error))?;
    Ok(nr_summed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_sums_every_file() {
        let args = SumBenchArgs {
            files: Some(150),
            mean_kb: Some(1),
        };
        for case in &mut cases(&args, &Settings::of_tests(&[])) {
            assert!(case.variants.len() >= 2);
            for variant in &mut case.variants {
                let sample = (variant.run)().unwrap().unwrap();
                assert!(sample.value(BYTES_PER_S).unwrap() > 0.0, "{}", variant.name);
            }
        }
    }
}
