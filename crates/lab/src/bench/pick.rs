//! The options that every bench has under its own names: which cases, against which peers.

use std::marker::PhantomData;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::measure::case::Case;

/// Word for "no peer at all".
const NONE: &str = "none";

/// What a bench has to offer.
pub trait Menu {
    /// Its cases, as `--cases` and tables spell them, in the order of the tables.
    const CASES: &'static [&'static str];
    /// Its peers, as `--peers` and tables spell them.
    const PEERS: &'static [&'static str];
}

/// What was picked from a bench's menu; everything when nothing was.
#[derive(Args, Clone, Debug)]
pub struct Pick<M: Menu + Clone + Send + Sync + 'static> {
    /// Cases to run, separated by commas [default: all]
    #[arg(long, value_name = "CASE,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(M::CASES))]
    pub cases: Vec<String>,

    /// Peers to measure against, separated by commas [default: all]
    #[arg(long, value_name = "PEER,…", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(M::PEERS.iter().copied().chain([NONE])))]
    pub peers: Vec<String>,

    #[arg(skip)]
    menu: PhantomData<M>,
}

impl<M: Menu + Clone + Send + Sync> Default for Pick<M> {
    fn default() -> Self {
        Self {
            cases: Vec::new(),
            peers: Vec::new(),
            menu: PhantomData,
        }
    }
}

impl<M: Menu + Clone + Send + Sync> Pick<M> {
    /// Picks cases, against all peers.
    #[must_use]
    pub fn of_cases(cases: &[&str]) -> Self {
        Self {
            cases: cases.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// Says whether `case` was picked.
    #[must_use]
    pub fn wants_case(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|wanted| wanted == case)
    }

    /// Makes the cases picked, and leaves out of each the peers that were not.
    ///
    /// `case` may return `None` for one that this machine cannot run.
    pub fn make<C: Into<Option<Case>>>(&self, case: impl FnMut(&'static str) -> C) -> Vec<Case> {
        let names = M::CASES.iter().copied();
        let names = names.filter(|name| self.wants_case(name));
        let mut cases: Vec<Case> = names.map(case).filter_map(Into::into).collect();
        if !self.peers.is_empty() {
            for case in &mut cases {
                case.variants
                    .retain(|variant| !variant.peer || self.peers.contains(&variant.name));
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::case::{Sample, Variant};

    #[derive(Clone)]
    struct Meal;

    impl Menu for Meal {
        const CASES: &'static [&'static str] = &["soup", "fish"];
        const PEERS: &'static [&'static str] = &["salt", "pepper"];
    }

    fn case(name: &'static str) -> Case {
        let none = || Ok(Some(Sample::default()));
        let peers = Meal::PEERS.iter().map(|peer| Variant::peer(*peer, none));
        Case {
            bench: "meal",
            name,
            about: String::new(),
            metrics: &[],
            headline: "",
            variants: [Variant::ours("water", none)]
                .into_iter()
                .chain(peers)
                .collect(),
            claims: Vec::new(),
        }
    }

    fn made(cases: &[&str], peers: &[&str]) -> Vec<(&'static str, Vec<String>)> {
        let pick = Pick::<Meal> {
            peers: peers.iter().map(ToString::to_string).collect(),
            ..Pick::of_cases(cases)
        };
        let names = |case: Case| {
            (
                case.name,
                case.variants.into_iter().map(|v| v.name).collect(),
            )
        };
        pick.make(case).into_iter().map(names).collect()
    }

    #[test]
    fn nothing_picked_is_everything() {
        let all: Vec<_> = made(&[], &[]);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|(_, variants)| variants.len() == 3));
    }

    #[test]
    fn peers_that_were_not_picked_are_left_out_and_ours_stay() {
        assert_eq!(
            made(&["fish"], &["salt"]),
            [("fish", vec!["water".into(), "salt".into()])]
        );
        assert_eq!(
            made(&["soup"], &[NONE]),
            [("soup", vec!["water".to_string()])]
        );
    }

    #[test]
    fn a_case_that_cannot_run_is_left_out() {
        let pick = Pick::<Meal>::default();
        let cases = pick.make(|name| (name == "soup").then(|| case(name)));
        assert_eq!(cases.len(), 1);
    }
}
