//! The formats of results. These are [mod@text] in [tables](table), [JSON](record), a
//! [page](mod@page), [verdicts](verdict) in [words], the [answers](answer) of `try` by their
//! [outcome], and the tables of the [sources]. A [`run::Run`] contains the lines of a run in order.

pub mod answer;
pub mod outcome;
pub mod page;
pub mod record;
pub mod run;
pub mod sources;
pub mod table;
pub mod text;
pub mod verdict;
pub mod words;
