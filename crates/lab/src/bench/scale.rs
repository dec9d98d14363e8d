//! `afterwork-lab bench scale`: the growth of costs with the number of queues and of SRCU domains.
//! Each variant has its own process, because memory is also measured.

use std::time::{Duration, Instant};

use afterwork::params::Params;
use afterwork::rcu::srcu::Domain;
use afterwork::workqueue::Workqueue;
use top::exit::Stop;
use topology::{AffinityScope, Topology};

use super::child::apart;
use super::max_active::gauge::Size;
use super::settings::{Entry, Menu, Settings, Sizes, names};
use super::workqueue::completion::Latch;
use super::workqueue::ours::Pools;
use super::workqueue::peers::{Crossbeam, Peer};
use super::workqueue::subject::OneShotPool;
use crate::harness::case::{Case, RunFn, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::metric::{Metric, Text, lower};

const BENCH: &str = "scale";
const CASES: [Entry<Settings>; 2] = [("queues", of_queues), ("domains", of_domains)];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &[Crossbeam::NAME] };

const OURS: &str = "ours";
const LIMIT: &str = "(log n)";

type Numbers = [usize; 4];
const NR_QUEUES: Numbers = [1, 10, 100, 1_000];
const NR_DOMAINS: Numbers = [1, 10, 100, 1_200];

/// The factor by which the time per item or domain grows when the number doubles. It is 2 to the
/// power of the fitted exponent. Unlike the exponent, it is positive, so ratios are meaningful.
const GROWTH: Metric = lower("growth", "x", ("times, as n", "doubles"), 1.0);
type Metrics = [Metric; 6];
const OF_QUEUES: &Metrics =
    &metrics("ns per item, by number of queues", ("ns@1000", "1k"), "bytes@1000");
const OF_DOMAINS: &Metrics =
    &metrics("ns per domain, by number of domains", ("ns@1200", "1.2k"), "bytes@1200");

const fn metrics(group: Text, (last, head): (Text, Text), bytes: Text) -> Metrics {
    [
        lower("ns@1", "ns", (group, "1"), 1.0),
        lower("ns@10", "ns", (group, "10"), 1.0),
        lower("ns@100", "ns", (group, "100"), 1.0),
        lower(last, "ns", (group, head), 1.0),
        GROWTH,
        lower(bytes, "B", ("", "bytes"), 1.0),
    ]
}

const ITEMS: Sizes = [200_000, 40_000];

/// The minimum duration of a measurement. Shorter measurements are repeated, because the clock and
/// the scheduler are coarse.
const LEAST: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 20 });

struct Cost {
    ns: f64,
    bytes: f64,
}

pub fn cases(settings: &Settings) -> Vec<Case> {
    settings.make(MENU, &CASES, settings)
}

fn of_queues(settings: &Settings, name: Text) -> Case {
    let items = settings.sized(ITEMS, 2_000);
    let (of, topology) = ((NR_QUEUES, OF_QUEUES), settings.topology.clone());
    let ours = Box::new(move |count| queues(&topology, count, items));
    let crossbeam = Box::new(move |count| threads(count, items));
    let variants = vec![
        Variant::ours(OURS, along(of, ours, settings)),
        Variant::peer(Crossbeam::NAME, along(of, crossbeam, settings)),
    ];
    let about = "time of an item; items go to N queues in turn (crossbeam: a thread each)";
    case(settings, (name, about), of, variants)
}

fn of_domains(settings: &Settings, name: Text) -> Case {
    let of = (NR_DOMAINS, OF_DOMAINS);
    let ours = Variant::ours(OURS, along(of, Box::new(domains), settings));
    let about = "time until the first callback of each of N new SRCU domains has run";
    case(settings, (name, about), of, vec![ours])
}

fn case(
    settings: &Settings,
    (name, about): (Text, &str),
    (numbers, metrics): (Numbers, &'static Metrics),
    mut variants: Vec<Variant>,
) -> Case {
    let [first, .., last] = numbers;
    variants.push(Variant::ours(LIMIT, move || {
        let points = numbers.map(|n| (n as f64, (2.0 * n as f64).log2()));
        Ok(Some(Sample::of([(GROWTH, growth(&points))])))
    }));
    let case = Case {
        about: format!("{about}; N is {first} to {last}"),
        variants,
        claims: vec![Claim::at_most(OURS, GROWTH, LIMIT, 1.0)],
        ..Case::new(BENCH, name, metrics, metrics[numbers.len() - 1].name)
    };
    apart(case, settings)
}

fn along(
    (numbers, metrics): (Numbers, &'static Metrics),
    at: Box<dyn Fn(usize) -> Result<Cost, Stop>>,
    settings: &Settings,
) -> RunFn {
    let interrupt = settings.interrupt.clone();
    Box::new(move || {
        let (mut sample, mut points) = (Sample::default(), Vec::new());
        for (number, metric) in numbers.into_iter().zip(metrics) {
            if interrupt.requested() {
                return Ok(None);
            }
            let Cost { ns, bytes } = at(number)?;
            sample.set(*metric, ns);
            points.push((number as f64, ns));
            if points.len() == numbers.len() {
                sample.set(metrics[metrics.len() - 1], bytes);
            }
        }
        sample.set(GROWTH, growth(&points));
        Ok(Some(sample))
    })
}

/// Returns 2 to the power of the slope of the least-squares line through the logarithms of
/// `points`.
fn growth(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len() as f64;
    let (mean_x, mean_y) = (mean(|it| it.0), mean(|it| it.1));
    let both: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let square: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (both / square).exp2()
}

fn weighed<T>(count: usize, make: impl FnOnce() -> Result<T, Stop>) -> Result<(T, f64), Stop> {
    let before = Size::now()?.resident;
    let made = make()?;
    let grown = Size::now()?.resident.saturating_sub(before);
    Ok((made, grown as f64 / count as f64))
}

fn queues(topology: &Topology, count: usize, items: usize) -> Result<Cost, Stop> {
    let pools = Pools::start(topology, Params::default())?;
    let (queues, bytes) = weighed(count, || {
        let build = |_| {
            let builder = Workqueue::builder("lab").affinity(AffinityScope::System);
            builder.build_in(&pools)
        };
        let queues = (0..count).map(build).collect::<Result<Vec<_>, _>>();
        queues.map_err(Stop::because("cannot build a queue"))
    })?;
    Ok(Cost { ns: ns_in_turn(&queues, items), bytes })
}

fn threads(count: usize, items: usize) -> Result<Cost, Stop> {
    let start = || (0..count).map(|_| Crossbeam::start(1)).collect::<Result<Vec<_>, _>>();
    let (pools, bytes) = weighed(count, start)?;
    Ok(Cost { ns: ns_in_turn(&pools, items), bytes })
}

/// Returns the mean time of one of `items` items that are queued to `pools` in turn. Queues all
/// items once to warm up, and then repeatedly for a while.
fn ns_in_turn(pools: &[impl OneShotPool], items: usize) -> f64 {
    let latch: &'static Latch = Box::leak(Box::default());
    let all = || {
        latch.arm(items);
        for item in 0..items {
            pools[item % pools.len()].submit(move || _ = latch.arrive());
        }
        latch.wait();
    };
    all();
    let (begun, mut nr_done) = (Instant::now(), 0);
    while nr_done == 0 || begun.elapsed() < LEAST {
        all();
        nr_done += items;
    }
    begun.elapsed().as_nanos() as f64 / nr_done as f64
}

/// Returns the cost of a domain if `count` SRCU domains are created, a callback is queued to each,
/// and all callbacks run.
fn domains(count: usize) -> Result<Cost, Stop> {
    let (ns, bytes) = weighed(count, || {
        let begun = Instant::now();
        let domains: Vec<Domain> = std::iter::repeat_with(Domain::new).take(count).collect();
        domains.iter().for_each(|domain| domain.call(|| ()));
        domains.iter().for_each(Domain::barrier);
        Ok((begun.elapsed().as_nanos() as f64 / count as f64, domains))
    })?;
    Ok(Cost { ns: ns.0, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::tests::run_each;

    #[test]
    fn every_variant_has_a_growth_and_ours_has_every_metric() {
        let cases = cases(&Settings::of_tests(&[]));
        assert!(cases.iter().all(|it| it.claims.iter().all(|claim| it.can_judge(claim))));
        run_each(cases, |case, variant, sample| {
            assert!(sample.value(GROWTH.name).unwrap() > 0.0, "{}", variant.name);
            let has_all = case.metrics.iter().all(|it| sample.value(it.name).is_some());
            assert_eq!(has_all, variant.name != LIMIT, "{}", variant.name);
        });
    }

    #[test]
    fn growth_beyond_the_limit_is_detected() {
        let of = |time: fn(f64) -> f64| growth(&NR_QUEUES.map(|n| (n as f64, time(n as f64))));
        assert!((of(|_| 20.0) - 1.0).abs() < 1e-9 && (of(|n| 3.0 * n) - 2.0).abs() < 1e-9);
        assert!((of(|n| 3e9 / n) - 0.5).abs() < 1e-9);
        let limit = of(|n| (2.0 * n).log2());
        assert!(of(f64::sqrt) > limit && of(|n| n) > limit);
        assert!(of(|n| 20.0 + n.ln()) < limit);
    }
}
