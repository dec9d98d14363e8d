//! The first plot of a page. It has one bar per case, from the line of equality to the factor by
//! which ours is better than the best peer.

use maud::{Markup, html};

use super::one::{anchor, metric_of, words_of};
use crate::output::outcome::{BETTER, EVEN, UNDECIDED, WORSE, three_digits};
use crate::output::run::{CaseRun, Run};
use crate::output::verdict::Standing;

/// The possible ends of the axis. The axis ends at the first one that no factor and no inverse of a
/// factor exceeds, or at the last one. A longer bar is cut off there.
const ENDS: [f64; 3] = [2.0, 10.0, 100.0];

type Row<'a> = (&'a CaseRun, Standing<'a>);

/// Draws the standings of all cases with a peer, the greatest factor first.
pub fn standings(run: &Run) -> Markup {
    let standing = |case| Some((case, Standing::of(case)?));
    let mut all: Vec<Row<'_>> = run.cases.iter().filter_map(standing).collect();
    all.sort_by(|a, b| b.1.times.total_cmp(&a.1.times));
    let (undecided, decided): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, it)| it.outcome() == UNDECIDED);
    let farthest = decided.iter().map(|(_, it)| it.times.max(it.times.recip()));
    let farthest = farthest.fold(1.0, f64::max);
    let end = ENDS.into_iter().find(|end| farthest <= *end).unwrap_or(ENDS[ENDS.len() - 1]);
    let count = |outcome| decided.iter().filter(|(_, it)| it.outcome() == outcome).count();
    if decided.is_empty() && undecided.is_empty() {
        return html! { p.quiet { "No case has a peer." } };
    }
    html! {
        figure.bars.standings {
            figcaption {
                "Ours against the best peer of each case. At the line both are equal; to the right ours is better."
                div.legend {
                    @for outcome in [BETTER, EVEN, WORSE] {
                        span { i class={ "fill " (outcome) } {} (outcome) " in " (count(outcome)) }
                    }
                }
            }
            @for row in &decided { (bar(row, end)) }
            div.bar.ticks aria-hidden="true" {
                span.name {}
                span.axis {
                    @for tick in [end.recip(), 1.0, end] {
                        span style=(format!("left:{:.2}%", percent(tick, end))) { (tick) " ×" }
                    }
                }
                span.value {}
                span.by {}
            }
            @if !undecided.is_empty() {
                details {
                    summary { (undecided.len()) " undecided: the repetitions differ too much, or there is only one" }
                    @for row in &undecided { (bar(row, end)) }
                }
            }
        }
    }
}

fn bar((case, standing): &Row<'_>, end: f64) -> Markup {
    let to = percent(standing.times, end);
    let headline = case.head.metrics.iter().find(|it| it.metric == case.head.headline);
    html! {
        div.bar {
            span.name { a href=(format!("#{}", anchor(case))) { (words_of(case)) } }
            span.track {
                span class={ "fill " (standing.outcome()) } style=(format!("left:{:.2}%;width:{:.2}%", to.min(50.0), (to - 50.0).abs())) {}
            }
            span.value { (three_digits(standing.times)) " ×" }
            span.by.quiet {
                "against " (standing.peer)
                @if let Some(metric) = headline { ", by " (metric_of(case, metric)) }
            }
        }
    }
}

/// Returns the position of a factor on the logarithmic axis, in percent. Equality is at 50.
fn percent(times: f64, end: f64) -> f64 {
    50.0 + 50.0 * (times.ln() / end.ln()).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::metric::Better;
    use crate::output::record::{Head, Line};
    use crate::output::verdict::tests::case;

    #[test]
    fn factors_and_their_inverses_are_equally_far_from_the_line() {
        for (times, place) in [(0.01, 0.0), (0.1, 25.0), (1.0, 50.0), (10.0, 75.0), (1e6, 100.0)] {
            assert!((percent(times, 100.0) - place).abs() < 1e-9, "{times}");
        }
    }

    #[test]
    fn bars_are_sorted_and_undecided_ones_follow_folded() {
        let of = |times, mad| case(Better::Higher, "1/s", (times, mad, 9));
        let mut run = Run::of(vec![Line::Head(Box::new(Head::of_tests()))]).unwrap();
        run.cases = vec![of(0.5, 0.01), of(7.0, 9.0), of(4.0, 0.1), of(1.0, 0.0)];
        let page = standings(&run).into_string();
        let places =
            ["4.00 ×", "1.00 ×", "0.500 ×", "1 undecided", "7.00 ×"].map(|it| page.find(it));
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{places:?} {page}");
        assert!(page.contains("10 ×"), "the axis ends above 4");
    }
}
